"""One thread beside the event loop that works off what is asked for, as many at a time as have come together.

Invariants: what one caller asked for fails alone; nothing is queued that nobody awaits, so the callers bound the queue; the
thread belongs to no event loop, and ends with the object.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class SideThread(Generic[ItemT, ResultT]):
    """Calls `work` with lists of up to `max_batch` items; it returns each one's result, or the exception it ends with."""

    def __init__(self, work: Callable[[Sequence[ItemT]], Sequence[ResultT | Exception]], max_batch: int = 64) -> None:
        self._work = work
        self._max_batch = max_batch
        self._waiting: deque[tuple[ItemT, asyncio.Future[ResultT]]] = deque()
        self._busy = False
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reward-loop-side")

    async def __call__(self, item: ItemT) -> ResultT:
        """Return what `work` makes of this item."""
        asked: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append((item, asked))
            idle, self._busy = not self._busy, True
        if idle:
            self._thread.submit(self._run)
        return await asked

    def _run(self) -> None:
        """Work until nothing is waiting."""
        while batch := self._next():
            if asking := [(item, asked) for item, asked in batch if not asked.cancelled()]:
                _deliver([asked for _, asked in asking], self._results([item for item, _ in asking]))

    def _next(self) -> list[tuple[ItemT, asyncio.Future[ResultT]]]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
            self._busy = bool(batch)
        return batch

    def _results(self, items: Sequence[ItemT]) -> Sequence[ResultT | Exception]:
        try:
            return self._work(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait, not to the thread
            return [error] * len(items)


def _deliver(asked: Sequence[asyncio.Future[ResultT]], results: Sequence[ResultT | Exception]) -> None:
    """Have each loop end those of these futures that are its own, all in one call: waking a loop is a system call."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[ResultT], ResultT | Exception]]] = {}
    for future, result in zip(asked, results, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, result))
    for loop, pairs in by_loop.items():
        with suppress(RuntimeError):  # a loop that was closed meanwhile has nobody left who waits
            loop.call_soon_threadsafe(_end, pairs)


def _end(pairs: Sequence[tuple[asyncio.Future[ResultT], ResultT | Exception]]) -> None:
    for future, result in pairs:
        if future.done():
            continue  # the caller has gone
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
