"""Running several requests at the same time, with an end that one caller can understand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def side_by_side(calls: Iterable[Callable[[], Awaitable[T]]], limit: int | None = None) -> list[T]:
    """Return what the calls return, in order, at most `limit` at a time; the first failure ends the others."""
    pending = list(calls)
    turns = asyncio.Semaphore(limit or len(pending) or 1)

    async def run(call: Callable[[], Awaitable[T]]) -> T:
        async with turns:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in pending]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
