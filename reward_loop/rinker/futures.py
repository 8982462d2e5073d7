"""The result of a call that goes on: for `await`, for threads that block, for `concurrent.futures`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class APIFuture(ABC, Generic[T]):
    """What a client's methods return at once; cancelling it cancels the operation."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> T:
        """Wait for the result; raises TimeoutError after `timeout` seconds (None: never), and the operation goes on."""

    @abstractmethod
    async def result_async(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the SDK's signature
        """`result` for a running event loop."""

    @abstractmethod
    def future(self) -> concurrent.futures.Future[T]:
        """Return it as a future of the standard library."""

    async def coroutine(self) -> T:
        """Return the result, for what takes a coroutine and not an awaitable."""
        return await self

    def __await__(self) -> Generator[Any, Any, T]:
        return self.result_async().__await__()


class ConcurrentFuture(APIFuture[T]):
    """One that is filled by another thread."""

    def __init__(self, future: concurrent.futures.Future[T]) -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> T:
        """See `APIFuture`."""
        return self._future.result(timeout)

    async def result_async(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the SDK's signature
        """See `APIFuture`."""
        waiting = asyncio.wrap_future(self._future)
        waiting.add_done_callback(_seen)
        try:
            await asyncio.wait({waiting}, timeout=timeout)
        except asyncio.CancelledError:  # as a task's own future would be
            self._future.cancel()
            raise
        # A wait that gave up does not end the operation.
        if not waiting.done():
            raise TimeoutError(f"no result within {timeout} s; the operation goes on")
        return waiting.result()

    def future(self) -> concurrent.futures.Future[T]:
        """See `APIFuture`."""
        return self._future


def _seen(waiting: asyncio.Future[Any]) -> None:
    """Look at the error, so that asyncio does not call it forgotten where the wait gave up."""
    if not waiting.cancelled():
        waiting.exception()
