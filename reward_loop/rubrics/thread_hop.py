"""Runs of synchronous rubrics, one after the other in one thread; a rubric that hangs is left behind with its thread.

Invariant: whoever takes a run out of `_now`, the thread when it has ended or the watch when its time is over, settles it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from contextvars import copy_context
from typing import Any

from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics.evaluation import discard, must_await
from reward_loop.rubrics.run import Run

Pending = tuple[Run, Awaitable[Any]]
Now = deque[tuple[Run, float]]
"""The run that a thread is in, and when it began; empty between runs."""


class ThreadHop:
    """Settles `runs` until one is fatal; what must be awaited of them is then in `pending`."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._left = deque(runs)
        self._shortest = min((run.entry.timeout_s for run in runs if run.entry.timeout_s is not None), default=None)
        self._fatal: Exception | None = None
        self.pending: list[Pending] = []

    async def go(self, crew: ThreadCrew) -> None:
        """Take the runs to their end; raise the error of one that is fatal."""
        while self._left and self._fatal is None:
            now: Now = deque()
            try:
                if self._shortest is None:
                    await crew.call(copy_context().run, self._work, now)
                else:
                    await self._watched(crew, now, self._shortest)
            except BaseException:  # cancelled too: the thread ends after the rubric that it is in
                self._left.clear()
                now.clear()
                raise
        if self._fatal is not None:
            raise self._fatal

    def _work(self, now: Now) -> None:
        """Runs in the thread."""
        while self._left and self._fatal is None:
            run = self._left.popleft()
            now.append((run, time.monotonic()))
            outcome = run.attempt()
            try:
                now.popleft()
            except IndexError:  # its time was over: somebody else goes on
                discard([outcome])
                return
            if must_await(outcome):
                self.pending.append((run, outcome))
            else:
                run.settle(outcome)
                self._fatal = run.fatal

    async def _watched(self, crew: ThreadCrew, now: Now, every_s: float) -> None:
        deadline = asyncio.timeout(None)
        self._watch = asyncio.get_running_loop().call_later(every_s, self._look, now, deadline, every_s)
        try:
            async with deadline:
                await crew.call(copy_context().run, self._work, now)
        except TimeoutError:
            if not deadline.expired():
                raise
        finally:
            self._watch.cancel()

    def _look(self, now: Now, deadline: asyncio.Timeout, every_s: float) -> None:
        """End the wait for the thread if the time of the rubric that it is in is over; else look again."""
        loop, left_s = asyncio.get_running_loop(), every_s
        try:
            run, started = now[0]
            if run.entry.timeout_s is not None:
                left_s = min(every_s, started + run.entry.timeout_s - time.monotonic())
            if left_s <= 0:
                now.remove((run, started))
                run.fail(run.late())
                self._fatal = run.fatal
                deadline.reschedule(loop.time())
                return
        except (IndexError, ValueError):  # it ended just now
            left_s = every_s
        self._watch = loop.call_later(left_s, self._look, now, deadline, every_s)
