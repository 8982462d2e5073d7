"""Micro-batching: samples that are asked for one by one travel together.

Lifetime: a task of the running loop carries what waits; it starts with the first sample and ends with the last, and the requests
are its children. So nothing is left behind when nobody asks, and a loop that shuts down cancels it like any other task.

Invariants: a sample is sent once its turn comes, unless its caller has gone; results and errors reach exactly the caller that
asked; the wait for a turn does not count towards a sample's deadline.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from reward_loop.deadline import waiting
from reward_loop.errors import RewardLoopError
from reward_loop.scoring.isolate import Refusal, isolated
from reward_loop.scoring.window import Window

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

SendUntil: TypeAlias = Callable[[Sequence[I], float], Awaitable[Sequence[R] | Refusal]]


@dataclass(eq=False, slots=True)
class _Item(Generic[I, R]):
    """An input, and its caller: who waits for the turn (`sent`), then for the `result`."""

    input: I
    since: float
    result: asyncio.Future[R]
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    batch: _Batch[I, R] | None = None

    def end(self, result: R | Exception) -> None:
        """Give the caller its result, or raise it there if it is an error."""
        if self.result.done():
            return  # the caller has gone
        if isinstance(result, Exception):
            # Each caller gets an error of its own, which may be told the name of its sample.
            self.result.set_exception(copy.copy(result) if isinstance(result, RewardLoopError) else result)
        else:
            self.result.set_result(result)

    def leave(self) -> None:
        """The caller has gone; a batch that nobody waits for any more is not worth its server's time."""
        if not self.result.cancel() and not self.result.cancelled():
            self.result.exception()  # seen: asyncio would log it as lost
        if self.batch is not None and all(item.result.done() for item in self.batch.items):
            self.batch.task.cancel()


@dataclass(frozen=True, slots=True)
class _Batch(Generic[I, R]):
    items: Sequence[_Item[I, R]]
    task: asyncio.Task[None]


class MicroBatcher(Generic[I, R]):
    """Sends single inputs in batches through `send(inputs, until)`; belongs to the event loop in which it is used.

    A batch and all that becomes of it must end at the loop's time `until`, `timeout_s` seconds after it left.
    """

    def __init__(self, send: SendUntil[I, R], window: Window, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._window = window
        self._queue: deque[_Item[I, R]] = deque()
        self._in_flight = 0
        self._changed = asyncio.Event()
        self._carrier: asyncio.Task[None] | None = None

    async def ask(self, one: I) -> R:
        """Return the server's result for one input; raises what the server said of it, or of its batch."""
        loop = asyncio.get_running_loop()
        item: _Item[I, R] = _Item(one, loop.time(), loop.create_future())
        self._queue.append(item)
        self._changed.set()
        if self._carrier is None or self._carrier.done():
            # A context of its own: what one caller holds (a reservation, a deadline) is not the batch's.
            self._carrier = loop.create_task(self._carry(), context=contextvars.Context())
        try:
            with waiting():
                await item.sent.wait()
            return await item.result
        except asyncio.CancelledError:
            item.leave()
            raise

    async def drained(self) -> None:
        """Wait until everything that was asked for has its answer."""
        if self._carrier is not None:
            await asyncio.wait([self._carrier])

    async def _carry(self) -> None:
        """Send batch after batch, side by side, until nothing waits and nothing is under way."""
        try:
            while self._queue:
                async with asyncio.TaskGroup() as batches:
                    while self._queue or self._in_flight:
                        self._changed.clear()
                        await self._next(batches)
        finally:
            while self._queue:  # only a loop that shuts down gets here
                self._release(self._queue.popleft())

    async def _next(self, batches: asyncio.TaskGroup) -> None:
        """Send the batch that is due, or wait until one is or until anything changes."""
        loop = asyncio.get_running_loop()
        due = self._window.leaves_at(len(self._queue), self._queue[0].since if self._queue else 0.0, self._in_flight)
        if due is None or due > loop.time():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
        elif items := self._taken():
            self._in_flight += 1
            task = batches.create_task(self._deliver(items))
            batch = _Batch(items, task)
            for item in items:
                item.batch = batch
                item.sent.set()

    def _taken(self) -> list[_Item[I, R]]:
        """Take a batch off the queue, less those whose callers have gone."""
        items: list[_Item[I, R]] = []
        while self._queue and len(items) < self._window.max_batch:
            item = self._queue.popleft()
            if not item.result.done():
                items.append(item)
        return items

    async def _deliver(self, items: Sequence[_Item[I, R]]) -> None:
        results: Sequence[R | Exception] = ()
        try:
            until = asyncio.get_running_loop().time() + self._timeout_s
            results = await isolated([item.input for item in items], lambda part: self._send(part, until))
        except Exception as error:  # noqa: BLE001 - a bug of ours too must reach those who wait
            results = [error] * len(items)
        finally:
            self._in_flight -= 1
            self._changed.set()
            for item, result in zip(items, results, strict=False):
                item.end(result)
            for item in items:
                self._release(item)

    @staticmethod
    def _release(item: _Item[I, R]) -> None:
        """Let go a caller to whom no answer will come any more."""
        item.sent.set()
        item.result.cancel()
