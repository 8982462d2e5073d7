"""Scoring of many samples by a synchronous function in threads: the path that millisecond rules take.

Each thread takes the next sample when it is done with the last one, so a slow sample holds up nothing but its thread; a thread
whose sample is over its deadline is abandoned and replaced. There is no task and no future per sample. Invariant: every row
is emitted exactly once, on the event loop: whoever takes the sample out of its slot, the thread or the deadline, emits it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from reward_loop.data.sample import Sample, SampleReader
from reward_loop.deadline import late, watch_parts
from reward_loop.isolation.threads import as_error, cpu_seconds, threads_wanted
from reward_loop.loop.sample_tasks import EmitRow, SampleTasks
from reward_loop.managers.base import RewardManagerBase
from reward_loop.outcome import Outcome

Finish = Callable[[int, Sample, Awaitable[Any], EmitRow], Coroutine[Any, Any, None]]

Pending = tuple[Sample, Awaitable[Any]]

_TICK_S = 0.02


@dataclass(slots=True)
class _Slot:
    """What one thread is doing; `current` holds at most one entry, which is popped to claim it."""

    current: deque[tuple[int, float]] = field(default_factory=deque)
    thread: threading.Thread | None = None
    cpu_seconds: float = 0.0
    inside_seconds: float = 0.0
    """Time spent inside the function by the samples that have ended."""
    inside_until_now: float = 0.0
    parts: set[str] = field(default_factory=set[str])
    """What is under way within the sample, for the error of its deadline."""

    def inside(self, now: float) -> float:
        """Return the time spent inside the function, the sample under way included."""
        try:
            return self.inside_seconds + now - self.current[0][1]
        except IndexError:
            return self.inside_seconds


def score_now(manager: RewardManagerBase, sample: Sample | Exception) -> Outcome | Pending:
    """Return the outcome of the function's call in this thread, or the sample with what the function returned to be awaited."""
    if isinstance(sample, Exception):
        return Outcome.from_error(sample, 0.0)
    started = time.monotonic()
    try:
        result = manager.start(sample)
        if isinstance(result, Awaitable):
            return sample, result
        reward = manager.finish(sample, result)
    except BaseException as error:  # noqa: BLE001 - no Ctrl-C comes to a thread: whatever user code raises is its sample's
        return Outcome.from_error(as_error(error), time.monotonic() - started)
    return Outcome("ok", reward, "", time.monotonic() - started)


class BulkScoring:
    """One pass over rows that `manager`'s synchronous function scores; `finish` awaits what it may return instead."""

    def __init__(
        self,
        manager: RewardManagerBase,
        reader: SampleReader,
        rows: Sequence[int],
        emit: EmitRow,
        finish: Finish,
    ) -> None:
        self._manager = manager
        self._samples = reader.read_all(rows)
        self._emit = emit
        self._finish = finish
        self._settings = manager.config.reward_model
        self._source = threading.Lock()
        self._exhausted = False
        self._stopped = False
        self._results: deque[tuple[int, Outcome | Pending]] = deque()
        self._flush_due = False

    async def run(self) -> None:
        """Score every row; ends when the last one has been emitted."""
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._slots: list[_Slot] = []
        try:
            async with SampleTasks(self._emit) as self._awaited:
                self._add_thread()
                await self._supervise()
        finally:
            self._stopped = True  # cancelled: threads end after the sample that they have, and don't count while it hangs
            for slot in self._slots:
                if slot.current and slot.thread is not None:
                    self._manager.threads.abandon(slot.thread)

    async def _supervise(self) -> None:
        last = time.monotonic()
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._ended.wait()
            except TimeoutError:
                now = time.monotonic()
                self._end_overdue(now)
                self._grow(now - last)
                last = now

    def _end_overdue(self, now: float) -> None:
        timeout_s = self._settings.timeout_s
        if timeout_s is None:
            return
        for slot in list(self._slots):
            try:
                row, started = slot.current[0]
                if now - started < timeout_s:
                    continue
                slot.current.remove((row, started))
            except (IndexError, ValueError):  # it ended just now
                continue
            self._slots.remove(slot)
            if slot.thread is not None:
                self._manager.threads.abandon(slot.thread)
            self._add_thread()
            self._emit(row, Outcome.from_error(late(timeout_s, slot.parts), now - started))

    def _grow(self, wall_seconds: float) -> None:
        computed = inside = 0.0
        now = time.monotonic()
        for slot in self._slots:
            if slot.thread is not None:
                computed_before, slot.cpu_seconds = slot.cpu_seconds, cpu_seconds(slot.thread)
                inside_before, slot.inside_until_now = slot.inside_until_now, slot.inside(now)
                computed += slot.cpu_seconds - computed_before
                inside += slot.inside_until_now - inside_before
        starting = any(slot.thread is None for slot in self._slots)  # the crew has no thread to spare: more would only queue
        if starting or self._exhausted:
            return
        wanted = threads_wanted(len(self._slots), computed, inside, wall_seconds, self._settings.max_threads)
        for _ in range(wanted - len(self._slots)):
            self._add_thread()

    def _add_thread(self) -> None:
        slot = _Slot()
        self._slots.append(slot)
        self._manager.threads.submit(lambda: self._pull(slot))

    def _pull(self, slot: _Slot) -> None:
        """Score sample after sample; runs in a thread."""
        slot.cpu_seconds = cpu_seconds(threading.current_thread())
        slot.thread = threading.current_thread()
        slot.parts = watch_parts()
        while (taken := self._next()) is not None:
            row, sample = taken
            started = time.monotonic()
            slot.parts.clear()
            slot.current.append((row, started))
            result = score_now(self._manager, sample)
            try:
                slot.current.pop()
            except IndexError:  # its deadline passed and was reported: this thread has been replaced
                return
            slot.inside_seconds += time.monotonic() - started
            self._results.append((row, result))
            if not self._flush_due:
                self._flush_due = True
                self._call(self._flush)
        self._call(lambda: self._leave(slot))

    def _next(self) -> tuple[int, Sample | Exception] | None:
        if self._stopped:
            return None
        with self._source:
            taken = next(self._samples, None)
        self._exhausted |= taken is None
        return taken

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop was closed: nobody waits for this sample any more
            self._stopped = True

    def _flush(self) -> None:
        self._flush_due = False
        while self._results and not self._stopped:
            row, result = self._results.popleft()
            if isinstance(result, Outcome):
                self._emit(row, result)
            else:
                self._awaited.start([row], self._finish(row, *result, self._emit))

    def _leave(self, slot: _Slot) -> None:
        self._flush()
        self._slots.remove(slot)
        if not self._slots:
            self._ended.set()
