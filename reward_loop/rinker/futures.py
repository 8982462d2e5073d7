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
        # Shielded: a wait that gave up must not end the operation.
        async with asyncio.timeout(timeout):
            return await asyncio.shield(asyncio.wrap_future(self._future))

    def future(self) -> concurrent.futures.Future[T]:
        """See `APIFuture`."""
        return self._future
