"""The reservation under which the current sample is scored, for whatever talks to the limited service further down."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from reward_loop.limits.reservation import Reservation

_current: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


def current_reservation() -> Reservation | None:
    """Return the reservation that this task works under, if there is one; threads have none."""
    return _current.get()


@contextmanager
def under(reservation: Reservation) -> Generator[None]:
    """Make a reservation the current one of this task until the block is left."""
    outer = _current.set(reservation)
    try:
        yield
    finally:
        _current.reset(outer)
