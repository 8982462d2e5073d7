"""A limit at work on an event loop: the ledger, a clock and one timer for the first in line.

Invariant: whatever changes the books lets everyone through who may go then, in order, and sets the timer for the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from reward_loop.config import RateLimitConfig
from reward_loop.errors import RewardServerError
from reward_loop.limits.ledger import Ledger, Ticket

MAX_TICKETS = 100_000
"""Requests that may wait or be held at a time."""

_logger = logging.getLogger(__name__)
_TICK_S = 0.001  # event loops measure milliseconds; less would wake up early, again and again


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that limits go by; with `speed` 60 a minute passes in a second."""

    speed: float = 1.0

    def now(self) -> float:
        """Return the seconds since some moment in the past."""
        return time.monotonic() * self.speed

    def real_s(self, seconds: float) -> float:
        """Return how long so many seconds of this clock really take."""
        return seconds / self.speed


class Gate:
    """Lets requests through as the limits allow. Use it on one event loop at a time."""

    def __init__(self, limits: RateLimitConfig, clock: Clock, *, takes_over: bool = False) -> None:
        self.limits = limits
        self.ledger = Ledger(limits, clock.now(), takes_over=takes_over)
        self._clock = clock
        self._granted: dict[Ticket, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, tokens: int | None, granted: Callable[[], None]) -> Ticket:
        """Join the line; `granted` (which must not raise) is called when the request may go, perhaps before this returns."""
        self._check_room()
        ticket = self.ledger.ask(self._clock.now(), tokens)
        self._granted[ticket] = granted
        self._serve()
        return ticket

    def adopt(self) -> Ticket:
        """Count a request that was let through elsewhere, before this gate took over."""
        self._check_room()
        return self.ledger.adopt()

    def leave(self, ticket: Ticket) -> None:
        """Give a request back, whether it waits or is held; twice does nothing."""
        self._granted.pop(ticket, None)
        self.ledger.leave(ticket, self._clock.now())
        self._serve()

    def settle(self, ticket: Ticket, tokens: int) -> None:
        """Book the tokens that a held request really took."""
        self.ledger.settle(ticket, tokens)
        self._serve()

    def throttle(self, ticket: Ticket, retry_after_s: float | None) -> None:
        """Halt everyone after a 429, then go on more slowly."""
        now = self._clock.now()
        until = self.ledger.throttle(ticket, now, retry_after_s)
        share = self.ledger.share_at(now)
        _logger.warning("429: nothing is sent for %.1f s, then at %.0f %% of the limit", until - now, 100 * share)
        self._serve()

    def close(self) -> None:
        """Stop the timer: nobody is let through any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_room(self) -> None:
        if self.ledger.waiting + self.ledger.held >= MAX_TICKETS:
            raise RewardServerError(f"{MAX_TICKETS} requests wait for or hold this limit already; ask for fewer at a time")

    def _serve(self) -> None:
        self.close()
        while ticket := self.ledger.grant(self._clock.now()):
            self._granted.pop(ticket)()
        if (due := self.ledger.due()) is not None:
            delay_s = self._clock.real_s(due - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(max(_TICK_S, delay_s), self._serve)
