"""The operations of one model, which run one by one in the order of their numbers, whatever the order in which they come.

Invariants: no two run at a time; none runs before one of a lower number has ended, well or not; a number runs once, and whoever
asks for it again gets the same result.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from reward_loop.errors import RequestFailedError

T = TypeVar("T")


class OperationQueue:
    """Gives the operations their turns. Of one event loop; it owns no tasks: each runs in its caller's."""

    def __init__(self, model_id: str, *, gap_timeout_s: float, max_waiting: int, max_results: int) -> None:
        self._model_id = model_id
        self._gap_timeout_s = gap_timeout_s
        self._max_waiting = max_waiting
        self._max_results = max_results
        self._next = 1
        self._ended: set[int] = set()
        self._turns: dict[int, asyncio.Event] = {}
        self._results: OrderedDict[int, asyncio.Future[Any]] = OrderedDict()
        self._idle_since = 0.0
        self._running = False
        self._closed = False

    async def run(self, seq_id: int, operation: Callable[[], Awaitable[T]]) -> T:
        """Run it when all before it have ended. Cancelling the first caller cancels it.

        Raises what the operation raises, and RequestFailedError("user") for a number that can't have its turn.
        """
        if (known := self._results.get(seq_id)) is not None:
            return await _result_of(known)
        self._check(seq_id)
        outcome = self._results[seq_id] = asyncio.get_running_loop().create_future()
        try:
            await self._turn(seq_id)
            self._running = True
            result = await operation()
        except asyncio.CancelledError:
            _fail(outcome, RequestFailedError(f"operation {seq_id} of {self._model_id} was cancelled", category="user"))
            raise
        except Exception as error:  # it belongs to whoever asks for this number again, too
            _fail(outcome, error)
            raise
        else:
            outcome.set_result(result)
            return result
        finally:
            self._end(seq_id)

    def close(self) -> None:
        """Fail what waits, and whatever comes."""
        self._closed = True
        for turn in self._turns.values():
            turn.set()

    def _check(self, seq_id: int) -> None:
        if self._closed:
            raise self._unloaded()
        if seq_id < 1:
            raise RequestFailedError(f"seq_id={seq_id}; the first operation of a model is number 1", category="user")
        if seq_id < self._next or seq_id in self._ended:
            ran = f"operation {seq_id} of {self._model_id} ran long ago and its result is no longer kept"
            raise RequestFailedError(f"{ran}; the next one is {self._next}", category="user")
        if len(self._turns) >= self._max_waiting:
            raise RequestFailedError(
                f"{len(self._turns)} operations of {self._model_id} wait, which is the limit", category="server"
            )

    async def _turn(self, seq_id: int) -> None:
        loop = asyncio.get_running_loop()
        if not (self._turns or self._running):
            self._idle_since = loop.time()  # the queue was empty: a gap begins now, if there is one
        if seq_id == self._next and not self._running:
            return
        turn = self._turns[seq_id] = asyncio.Event()
        try:
            while not turn.is_set():
                await self._wait(turn, seq_id, loop)
        finally:
            del self._turns[seq_id]
        if self._closed:
            raise self._unloaded()

    async def _wait(self, turn: asyncio.Event, seq_id: int, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the turn; raises once the operation that is missing has been missing for too long."""
        left = self._gap_timeout_s if self._running else self._idle_since + self._gap_timeout_s - loop.time()
        if left <= 0:
            waits = f"operation {seq_id} of {self._model_id} waits for operation {self._next}"
            raise RequestFailedError(f"{waits}, which has not come within {self._gap_timeout_s:g} s", category="user")
        try:
            async with asyncio.timeout(left):
                await turn.wait()
        except TimeoutError:
            return  # whether the missing one is really missing is seen anew

    def _end(self, seq_id: int) -> None:
        self._ended.add(seq_id)
        if seq_id == self._next:
            self._running = False
            while self._next in self._ended:
                self._ended.remove(self._next)
                self._next += 1
            self._idle_since = asyncio.get_running_loop().time()
            if (turn := self._turns.get(self._next)) is not None:
                self._running = True  # from now on: another must not take its place before it has woken
                turn.set()
        self._forget()

    def _forget(self) -> None:
        for seq_id in list(self._results):
            if len(self._results) <= self._max_results:
                return
            if self._results[seq_id].done():
                del self._results[seq_id]

    def _unloaded(self) -> RequestFailedError:
        return RequestFailedError(f"model {self._model_id} was unloaded; create it anew, or from what was saved", category="user")


def _fail(outcome: asyncio.Future[Any], error: Exception) -> None:
    outcome.set_exception(error)
    outcome.exception()  # looked at, so that asyncio does not call it forgotten where nobody asks again


async def _result_of(outcome: asyncio.Future[T]) -> T:
    # Shielded: who asked again and leaves must not take the result from the first.
    return await asyncio.shield(outcome)
