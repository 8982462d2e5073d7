"""One HTTP request as ASGI gives it: its body, whole and bounded, and whether its sender is still there.

Invariant: what was read can be given to another application as if it had not been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from reward_loop.serving.inside.reply import Refusal

Message = dict[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

MAX_BODY_BYTES = 64 * 2**20
"""Size of a body that is read as a whole."""


class HungUp(Exception):
    """The sender closed the connection."""


async def body_of(receive: Receive) -> bytes:
    """Return the whole body; raises Refusal (413) if it is too large, HungUp if it does not come."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise Refusal(413, "too_large", f"the body is larger than {MAX_BODY_BYTES} bytes; send fewer inputs in one request")
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives this body first, then what is left."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def unless_hung_up(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Await the work, which is cancelled when the sender hangs up: raises HungUp then, else what the work raises."""
    try:
        async with asyncio.TaskGroup() as group:
            job = group.create_task(work)
            watch = group.create_task(_cancel_on_hang_up(job, receive))
            job.add_done_callback(lambda _: watch.cancel())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    if job.cancelled():
        raise HungUp
    return job.result()


async def _cancel_on_hang_up(job: asyncio.Task[Any], receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancel()
