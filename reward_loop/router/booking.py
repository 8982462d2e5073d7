"""Which of several equal workers takes the next piece of work, and for how long. Pure: no clock, no I/O, no tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

Worker = TypeVar("Worker")


class LeastBooked(Generic[Worker]):
    """Give each piece to the worker with the least in flight; equals take turns, so that no one is always first."""

    def __init__(self, workers: Collection[Worker]) -> None:
        self._in_flight: dict[Worker, int] = dict.fromkeys(workers, 0)

    @property
    def in_flight(self) -> dict[Worker, int]:
        """The load of each worker, in the caller's units."""
        return dict(self._in_flight)

    def acquire(self, load: int, max_load: int) -> Worker | None:
        """Book `load` on the least loaded worker and return it; None if it would exceed `max_load` everywhere.

        An idle worker takes any load.
        """
        worker = min(self._in_flight, key=self._in_flight.__getitem__)
        booked = self._in_flight[worker]
        if booked and booked + load > max_load:
            return None
        del self._in_flight[worker]  # to the end of the order: min() takes the first of equals
        self._in_flight[worker] = booked + load
        return worker

    def release(self, worker: Worker, load: int) -> None:
        """Take back a load that `acquire` booked."""
        self._in_flight[worker] -= load
