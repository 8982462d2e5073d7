"""The thread that writes, so that training never waits for an experiment tracker.

Invariants: the queue is bounded, and offering a record to a full one returns at once; a backend that fails costs the record at
which it failed, and gets the next one; a weight is written when it differs from the one written last.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reward_loop.rubrics.logger.backend import Backend
from reward_loop.rubrics.logger.record import Record

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place in the queue: everything before it is written once `reached` is set."""

    last: bool
    reached: threading.Event = field(default_factory=threading.Event)


class BackgroundWriter:
    """Writes records to a backend, one after the other, in a thread of its own."""

    def __init__(self, backend: Backend, queue_records: int) -> None:
        if queue_records < 1:
            raise ValueError(f"queue_records={queue_records} must be at least 1")
        self.lost = 0
        """Records that the backend failed to write."""
        self._backend = backend
        self._weights: dict[str, float] = {}
        self._failing = 0
        self._queue: queue.Queue[Record | _Mark] = queue.Queue(queue_records)
        self._thread = threading.Thread(target=self._serve, name="reward-logger", daemon=True)
        self._thread.start()

    def offer(self, record: Record) -> bool:
        """Queue a record; False, at once, where the queue is full."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            return False
        return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued so far is written and the backend flushed; False where that takes longer."""
        return self._reach(_Mark(last=False), timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Write what is queued, close the backend and end the thread; False where that takes longer."""
        if not self._reach(_Mark(last=True), timeout_s):
            return False
        self._thread.join()
        return True

    def _reach(self, mark: _Mark, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        try:
            self._queue.put(mark, timeout=max(timeout_s, 0.001))
        except queue.Full:
            return False
        return mark.reached.wait(deadline - time.monotonic())

    def _serve(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, Record):
                self._write(item)
                continue
            self._guarded(self._backend.close if item.last else self._backend.flush, "it could not be flushed")
            item.reached.set()
            if item.last:
                return

    def _write(self, record: Record) -> None:
        changed = {name: weight for name, weight in record.weights.items() if self._weights.get(name) != weight}
        fresh = replace(record, weights=changed)
        if not fresh.numbers():
            return
        if self._guarded(lambda: self._backend.write(fresh), f"step={record.step} is lost"):
            self._weights.update(changed)
            if self._failing:
                _logger.warning("backend=%s writes again, after lost steps=%d", self._name, self._failing)
            self._failing = 0
        else:
            self._failing += 1
            self.lost += 1

    def _guarded(self, action: Callable[[], None], loss: str) -> bool:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a tracker may raise anything, and must not end the training or the thread
            if not self._failing:  # one line when it begins to fail, one when it works again
                _logger.error("backend=%s failed, %s: %s: %s", self._name, loss, type(error).__name__, error)
            return False
        return True

    @property
    def _name(self) -> str:
        return type(self._backend).__name__
