"""An event loop of the project's own, in a thread: the same call works from a script, a trainer, or a running loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from reward_loop.errors import RewardLoopError

T = TypeVar("T")


class LoopThread:
    """A uvloop event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for its result; interrupting the wait cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:  # Ctrl-C while waiting: the work must not go on unseen
            future.cancel()
            raise

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it there and await its result; cancelling the caller cancels it."""
        try:
            return await asyncio.wrap_future(self.submit(coroutine))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _closed() from None

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Have it run there; cancelling the future cancels it."""
        if self.closed:
            coroutine.close()
            raise _closed()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    @property
    def current(self) -> bool:
        """Whether this is called on it, where waiting for its work would never end."""
        return threading.current_thread() is self._thread

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._loop.is_closed()

    def end_generators(self, wait_s: float) -> None:
        """Close what lives as long as the loop, such as HTTP sessions, or give up after so many seconds."""
        ending = self.submit(self._loop.shutdown_asyncgens())
        with contextlib.suppress(TimeoutError):
            ending.result(wait_s)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what still runs, run `last`, and stop the loop; a second call does nothing."""
        if self.closed:
            return
        self.run(_cancel_all())
        try:
            self.run(last())
            self.run(self._loop.shutdown_asyncgens())  # what lives as long as the loop (HTTP sessions) ends there
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def _closed() -> RewardLoopError:
    return RewardLoopError("this manager was closed; build another one")


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks) if tasks else None
