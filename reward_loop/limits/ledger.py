"""Who may ask a limited service next, and when: the books of one limit, without a clock and without I/O.

Invariants: requests go in the order in which they asked; requests and tokens stay below their rates in every window, beyond a
burst of one second (at least one request); at most `max_concurrent` are held. Every operation costs the same however many wait:
only the first in line is booked, in virtual time (as in the generic cell rate algorithm), so that nobody polls.

A request larger than the burst waits its turn and then until its size has been earned; nobody overtakes it meanwhile.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from reward_loop.config import RateLimitConfig
from reward_loop.limits.pace import Pace

UNSTATED_HALT_S = 1.0
"""Halt after a 429 that does not say for how long, at full rate; the slower the pace, the longer."""
LONGEST_HALT_S = 600.0
"""Longest halt that one 429 can cause, whatever its Retry-After says."""
TAKE_OVER_S = 2.0
"""Time that a ledger which takes over gives the holders of places to declare them, before it lets anyone through."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One request: waiting in line, held, or given back. `tokens` is what it is booked with."""

    tokens: float
    granted_at: float = -math.inf
    held: bool = False


class Meter:
    """One rate. `paid` is the work (see Pace) by which everything that was let through is earned; no rate: infinite."""

    def __init__(self, per_minute: float | None, at_least: float) -> None:
        self._per_s = math.inf if per_minute is None else per_minute / 60
        self._burst = max(1.0, at_least / self._per_s)
        self.paid = -self._burst

    def charge(self, amount: float, work: float) -> None:
        """Book an amount, on top of what was saved up: one burst at most."""
        self.paid = max(self.paid, work - self._burst) + amount / self._per_s

    def correct(self, amount: float) -> None:
        """Book so much more (or less, where negative) than was charged."""
        self.paid += amount / self._per_s

    def let_through(self, amount: float, work: float) -> None:
        """Forget what was saved up while an amount that is earned waited for something else."""
        self.paid = max(self.paid, work - max(0.0, self._burst - amount / self._per_s))

    def empty(self, work: float) -> None:
        """Forget everything that was saved up."""
        self.paid = max(self.paid, work)


class Ledger:
    """The books of one limit. Times are seconds of any clock that never goes back.

    `takes_over`: another ledger was there before, so that nothing is saved up and places may be taken.
    """

    def __init__(self, limits: RateLimitConfig, now: float, *, takes_over: bool = False) -> None:
        self._estimate = limits.estimated_tokens_per_request
        self._places = limits.max_concurrent or math.inf
        self._requests = Meter(limits.max_rpm, at_least=1)
        self._tokens = Meter(limits.max_tpm, at_least=self._estimate)
        self._pace = Pace(now + TAKE_OVER_S if takes_over else now)
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()  # a dict would scan what left its front
        self._held = 0
        self._slowed_at = -math.inf
        if takes_over:
            self._empty(now)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def held(self) -> int:
        """How many were let through and not given back."""
        return self._held

    def share_at(self, now: float) -> float:
        """Return the share of the full rate at which requests go now."""
        return self._pace.share_at(now)

    def ask(self, now: float, tokens: int | None = None) -> Ticket:
        """Join the line with a request of so many tokens (None: the estimate)."""
        ticket = Ticket(self._estimate if tokens is None else tokens)
        self._waiting[ticket] = None
        if len(self._waiting) == 1:
            self._book(ticket, now)
        return ticket

    def adopt(self) -> Ticket:
        """Count a request that another ledger let through."""
        self._held += 1
        return Ticket(self._estimate, held=True)

    def due(self) -> float | None:
        """Return when the first in line may go; None if nobody waits, or until a place is given back."""
        if not self._waiting or self._held >= self._places:
            return None
        times = [self._pace.time_of(meter.paid) for meter in (self._requests, self._tokens)]
        if self._held:  # one may always go, however slow the pace
            times.append(self._pace.time_of_share((self._held + 1) / self._places))
        return max(times)

    def grant(self, now: float) -> Ticket | None:
        """Let the first in line through if it may go by now."""
        due = self.due()
        if due is None or due > now:
            return None
        ticket, _ = self._waiting.popitem(last=False)
        work = self._pace.work_at(now)
        self._requests.let_through(1, work)
        self._tokens.let_through(ticket.tokens, work)
        ticket.granted_at, ticket.held = now, True
        self._held += 1
        self._book_first(now)
        return ticket

    def leave(self, ticket: Ticket, now: float) -> None:
        """Give a request back: one that waits costs nothing, one that was let through stays booked; twice does nothing."""
        if ticket.held:
            ticket.held = False
            self._held -= 1
        elif ticket in self._waiting:
            first = ticket is next(iter(self._waiting))
            del self._waiting[ticket]
            if first:
                self._requests.correct(-1)
                self._tokens.correct(-ticket.tokens)
                self._book_first(now)

    def settle(self, ticket: Ticket, tokens: int) -> None:
        """Book the tokens that a held request really took, in place of what it was booked with."""
        if ticket.held:
            self._tokens.correct(tokens - ticket.tokens)
            ticket.tokens = tokens

    def throttle(self, ticket: Ticket, now: float, retry_after_s: float | None) -> float:
        """Halt everyone for so long, because the service answered a request with 429; returns until when.

        Slows everyone down too, unless the request went out before the last slow-down and so says nothing about the new pace.
        """
        pace = self._pace.slowed(now) if ticket.granted_at >= self._slowed_at else self._pace
        halt_s = UNSTATED_HALT_S / pace.share_at(now) if retry_after_s is None else max(0.0, retry_after_s)
        self._empty(now)
        self._pace = pace.halted(now, now + min(halt_s, LONGEST_HALT_S))
        self._slowed_at = now
        return self._pace.since

    def _empty(self, now: float) -> None:
        work = self._pace.work_at(now)
        self._requests.empty(work)
        self._tokens.empty(work)

    def _book_first(self, now: float) -> None:
        if self._waiting:
            self._book(next(iter(self._waiting)), now)

    def _book(self, ticket: Ticket, now: float) -> None:
        work = self._pace.work_at(now)
        self._requests.charge(1, work)
        self._tokens.charge(ticket.tokens, work)
