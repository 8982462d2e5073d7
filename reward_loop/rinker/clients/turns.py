"""The numbers of a model's operations, and what holds back those behind a custom loss.

Invariants: a number is given at the moment of the call, under a lock; what is numbered behind a custom loss is sent only when the
custom loss has been; if that fails its numbers stay empty, so nothing behind it is sent at all. No other number stays empty.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from dataclasses import dataclass

from reward_loop.errors import RequestFailedError


@dataclass(slots=True, eq=False)
class Turn:
    """The numbers of one operation (as many as it has chunks), and what it waits for before it is sent."""

    seq_ids: range
    _gate: concurrent.futures.Future[None] | None
    has_come: bool = False
    """Whether it may be sent."""

    async def come(self) -> None:
        """Wait until it may be sent. Raises RequestFailedError where a custom loss before it failed."""
        if self._gate is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(self._gate))
            except GateShut as shut:
                raise _poisoned() from shut.__cause__
        self.has_come = True


class GateShut(Exception):
    """A custom loss failed; the cause is its error. Never leaves this package."""


class Turns:
    """Gives the numbers of one model's operations, from 1 on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._gate: concurrent.futures.Future[None] | None = None

    def take(self, count: int = 1) -> Turn:
        """Number an operation."""
        with self._lock:
            return self._taken(count)

    def take_gated(self, count: int) -> tuple[Turn, Gate]:
        """Number an operation that holds back those behind it until its gate is opened."""
        with self._lock:
            turn = self._taken(count)
            self._gate = concurrent.futures.Future()
            return turn, Gate(self._gate)

    def _taken(self, count: int) -> Turn:
        start, self._next = self._next, self._next + count
        return Turn(range(start, self._next), self._gate)


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds back operations."""

    _opened: concurrent.futures.Future[None]

    def open(self) -> None:
        """Let them go."""
        if not self._opened.done():
            self._opened.set_result(None)

    def shut(self, error: BaseException) -> None:
        """Refuse them for good, unless they may go already."""
        if not self._opened.done():
            shut = GateShut()
            shut.__cause__ = error
            self._opened.set_exception(shut)


def _poisoned() -> RequestFailedError:
    what = "a custom loss of this TrainingClient failed before this call, whose place in the order can't be filled any more"
    return RequestFailedError(f"{what}; make another client, from state if you saved it", category="user")
