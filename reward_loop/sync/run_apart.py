"""Running asynchronous work from synchronous code, whatever the calling thread's own event loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what the work returns, done in an event loop of a thread of its own.

    Who is interrupted while waiting (Ctrl-C) has the work cancelled, and waits until it has cleaned up.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def noted() -> T:
        begun.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    with ThreadPoolExecutor(1, "publish") as thread:  # leaving the block waits for the thread
        result = thread.submit(lambda: asyncio.run(noted()))
        try:
            return result.result()
        except BaseException:  # Ctrl-C, which reaches this thread while the work goes on in the other
            if not result.done():
                loop, task = begun.result()
                if task is not None:
                    loop.call_soon_threadsafe(task.cancel)
            raise
