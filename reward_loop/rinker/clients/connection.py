"""What the clients of one service share: the backend, and the calls that are under way."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from reward_loop.rinker.backend import Backend
from reward_loop.rinker.clients.background_loop import background_loop
from reward_loop.rinker.clients.loop_future import LoopFuture

T = TypeVar("T")

Step = Callable[[], Coroutine[Any, Any, None]]


class Connection:
    """Runs the calls of clients on the background loop; what still runs when it is closed is cancelled."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._pending: set[concurrent.futures.Future[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, call: Coroutine[Any, Any, T], *, if_cancelled: Step | None = None) -> LoopFuture[T]:
        """Have a call run, and behind it `if_cancelled` where its future is cancelled. Raises RuntimeError after `close`."""
        future = self._begun(call)
        if future is None:
            raise RuntimeError("this client is closed, or the ServiceClient that it is of; make another one")
        future.add_done_callback(functools.partial(self._ended, if_cancelled))
        return LoopFuture(future)

    def close(self) -> LoopFuture[None]:
        """Cancel what runs, and close the backend; a second call does nothing."""
        with self._lock:
            first, self._closed = not self._closed, True
            pending = list(self._pending)
        for future in pending:
            future.cancel()
        return LoopFuture(background_loop().submit(self._end(first)))

    async def _end(self, first: bool) -> None:
        if first:
            await self.backend.close()

    def _begun(self, call: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T] | None:
        with self._lock:
            if self._closed:
                call.close()
                return None
            future = background_loop().submit(call)
            self._pending.add(future)
            return future

    def _ended(self, if_cancelled: Step | None, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._pending.discard(future)
        if if_cancelled is not None and future.cancelled():
            following = self._begun(if_cancelled())
            if following is not None:
                following.add_done_callback(functools.partial(self._ended, None))
