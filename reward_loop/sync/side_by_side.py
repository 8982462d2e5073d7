"""The same call to several servers at the same time, each answer kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from reward_loop.sync.server_call import Answer


async def answers_of(calls: Mapping[str, Coroutine[Any, Any, Answer]], grace_s: float | None = None) -> list[Answer]:
    """Return the answer of each server, in order.

    With `grace_s`, once one of them is bad the others have so many seconds to bring theirs, which may say more; None: all are
    waited for.
    """
    tasks = {asyncio.create_task(each, name=f"ask {server}"): server for server, each in calls.items()}
    pending, failed = set(tasks), False
    try:
        while pending:
            limit_s = grace_s if failed else None
            done, pending = await asyncio.wait(pending, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            failed = failed or not all(task.result().good for task in done)
    finally:
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
    return [
        Answer(server, 0, said="had not answered when another server failed") if task.cancelled() else task.result()
        for task, server in tasks.items()
    ]
