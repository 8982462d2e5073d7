"""A limit that one process keeps for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reward_loop.config import RateLimitConfig
from reward_loop.deadline import waiting
from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.limits.gate import Clock, Gate
from reward_loop.limits.ledger import Ticket
from reward_loop.limits.reservation import Reservation
from reward_loop.limits.wire import MAX_TOKENS


@dataclass(frozen=True, slots=True)
class LocalReservation:
    """A request that this process's gate let through."""

    gate: Gate
    ticket: Ticket

    def used(self, tokens: int) -> None:
        """Say how many tokens the response counted."""
        self.gate.settle(self.ticket, max(0, tokens))

    def throttled(self, retry_after_s: float | None) -> None:
        """Say that the service answered 429."""
        self.gate.throttle(self.ticket, retry_after_s)


class LocalLimiter:
    """Lets requests of one event loop at a time through."""

    def __init__(self, limits: RateLimitConfig, clock: Clock | None = None) -> None:
        self._gate = Gate(limits, clock or Clock())
        self._waiting: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def reserve(self, tokens: int | None = None) -> AsyncGenerator[Reservation]:
        """Wait until a request with so many tokens (None: the estimate) may go."""
        go = asyncio.get_running_loop().create_future()
        ticket = self._gate.ask(checked(tokens), lambda: None if go.done() else go.set_result(None))
        self._waiting.add(go)
        try:
            with waiting():
                await go
            yield LocalReservation(self._gate, ticket)
        finally:
            self._waiting.discard(go)
            self._gate.leave(ticket)

    async def close(self) -> None:
        """Let nobody through any more; whoever waits gets an error."""
        for go in self._waiting:
            if not go.done():
                go.set_exception(closed())


def checked(tokens: int | None) -> int | None:
    """Return the tokens to book; ConfigError for what can't be booked."""
    if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"reserve(tokens={tokens!r}): it must be from 0 to {MAX_TOKENS}, or None for the estimate")
    return tokens


def closed() -> RewardLoopError:
    """Return the error of whoever waits for a limit that was closed."""
    return RewardLoopError("the rate limit was closed while this request waited for it; close it after the last sample")
