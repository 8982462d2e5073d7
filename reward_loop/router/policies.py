"""Which of several equal replicas takes the next piece of work. Pure: no clock, no I/O, no tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

Replica = TypeVar("Replica")


class LeastLoad(Generic[Replica]):
    """Give each piece to the replica with the least in flight; equals take turns, so that no one is always first."""

    def __init__(self, replicas: Collection[Replica]) -> None:
        self._in_flight: dict[Replica, int] = dict.fromkeys(replicas, 0)

    @property
    def in_flight(self) -> dict[Replica, int]:
        """The load of each replica, in the caller's units."""
        return dict(self._in_flight)

    def acquire(self, load: int, max_load: int) -> Replica | None:
        """Book `load` on the least loaded replica and return it; None if it would exceed `max_load` everywhere.

        An idle replica takes any load.
        """
        replica = min(self._in_flight, key=self._in_flight.__getitem__)
        booked = self._in_flight[replica]
        if booked and booked + load > max_load:
            return None
        del self._in_flight[replica]  # to the end of the order: min() takes the first of equals
        self._in_flight[replica] = booked + load
        return replica

    def release(self, replica: Replica, load: int) -> None:
        """Take back a load that `acquire` booked."""
        self._in_flight[replica] -= load
