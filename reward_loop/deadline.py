"""The deadline of one sample, which stands still while the sample waits for its turn, and so do those around it.

Invariant: only the time in which a sample is worked on counts; whatever makes it queue (for a grader process, a sandbox, a rate
limit) says so with `waiting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from reward_loop.errors import RewardTimeout

T = TypeVar("T")


@dataclass(slots=True)
class _Clock:
    """A running deadline; stands still while `waiting` tasks of its sample wait, with `left_s` seconds to go."""

    deadline: asyncio.Timeout
    outer: _Clock | None
    """That of the work of which this is a part."""
    waiting: int = 0
    left_s: float = 0.0

    def stop(self) -> None:
        if not self.waiting and (due := self.deadline.when()) is not None:
            self.left_s = due - asyncio.get_running_loop().time()
            self.deadline.reschedule(None)
        self.waiting += 1

    def go_on(self) -> None:
        self.waiting -= 1
        if not self.waiting and not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time() + self.left_s)


_current: ContextVar[_Clock | None] = ContextVar("deadline", default=None)
_parts: ContextVar[set[str] | None] = ContextVar("parts", default=None)


def parts_under_way() -> set[str] | None:
    """Return the names of the parts of the sample's work that have begun and not ended, for those who begin and end them.

    None where nobody asks. What is in it when the deadline has passed is what the error names.
    """
    return _parts.get()


def watch_parts() -> set[str]:
    """Begin a set of parts for all that is done in this thread or task."""
    parts = set[str]()
    _parts.set(parts)
    return parts


async def within(awaitable: Awaitable[T], timeout_s: float | None) -> T:
    """Await for at most `timeout_s` seconds (None: for ever), then cancel and raise RewardTimeout."""
    deadline = asyncio.timeout(timeout_s)
    running = _current.get()
    outer = _current.set(_Clock(deadline, running) if timeout_s is not None else running)
    parts = set[str]()
    parts_before = _parts.set(parts)
    try:
        async with deadline:
            return await awaitable
    except TimeoutError:
        if deadline.expired():
            raise late(timeout_s, parts) from None
        raise
    finally:
        _parts.reset(parts_before)
        _current.reset(outer)


@contextmanager
def waiting() -> Generator[None]:
    """Stop the clock of the sample that this task works for, if one is running, until the block is left."""
    clocks = list[_Clock]()
    clock = _current.get()
    while clock is not None:
        clocks.append(clock)
        clock = clock.outer
    for each in clocks:
        each.stop()
    try:
        yield
    finally:
        for each in clocks:
            each.go_on()


def late(timeout_s: float | None, parts: Collection[str] = ()) -> RewardTimeout:
    """Return the error of a sample that was over its deadline, with these parts of its work under way."""
    still = f": {', '.join(sorted(parts))} had not ended" if parts else ""
    return RewardTimeout(f"not scored within {timeout_s} s (reward_model.timeout_s){still}")
