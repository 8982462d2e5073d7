"""A limit that many processes keep together: this process's end of it.

Invariants: requests of this process are asked for in order, again in that order after the server was lost; what was let through
before a server was lost is declared to the next one; a request that nobody waits for any more is given back.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reward_loop.config import RateLimitConfig
from reward_loop.deadline import waiting
from reward_loop.errors import ConfigError, RewardLoopError, ServerUnavailable
from reward_loop.limits.address import split_address
from reward_loop.limits.hosting import HostedServer
from reward_loop.limits.link import Link
from reward_loop.limits.local import LocalLimiter, checked, closed
from reward_loop.limits.reservation import Limiter, Reservation
from reward_loop.limits.server import WHERE, LimitServer
from reward_loop.limits.wire import MAX_TOKENS, WireError

PATIENCE_S = 30.0
"""Seconds after which a server that can't be reached is given up."""

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 1.0


def open_limiter(settings: RateLimitConfig, *, name: str, address: str | None = None, token: str = "") -> Limiter:
    """Return the limit of that name: the one served at `address`, else the one shared at `settings.address`, else our own.

    What is shared at `settings.address` is served by the first process that comes; `address` is of a server that runs already.
    """
    where = address or settings.address
    if where is None:
        return LocalLimiter(settings)
    if address is None and settings.token_env is not None:
        token = _secret(settings.token_env)
    return SharedLimiter(settings, name=name, address=where, token=token, serves=address is None)


def _secret(variable: str) -> str:
    secret = os.environ.get(variable, "")
    if not secret:
        raise ConfigError(
            f"rate_limit.token_env: the environment variable {variable} is not set; give every process the same one"
        )
    return secret


@dataclass(slots=True, eq=False)
class Request:
    """One request of this process. `go` is True when it was let through, False when it must be asked for again."""

    key: int
    tokens: int | None
    go: asyncio.Future[bool]
    link: Link | None = None
    granted: bool = False
    refusal: RewardLoopError | None = None

    def tell(self, link: Link) -> None:
        """Ask for it over this connection, or declare that it is held."""
        self.link = link
        if self.granted:
            link.say(held=self.key)
            return
        self.go = asyncio.get_running_loop().create_future()
        link.say(ask=self.key, tokens=self.tokens)

    def settle(self, granted: bool) -> None:
        """Say whether it was let through or its connection lost."""
        if not self.go.done():
            self.granted = granted
            self.go.set_result(granted)


@dataclass(frozen=True, slots=True)
class SharedReservation:
    """A request that the server let through."""

    request: Request

    def used(self, tokens: int) -> None:
        """Say how many tokens the response counted."""
        if self.request.link is not None:
            self.request.link.say(used=self.request.key, tokens=max(0, min(tokens, MAX_TOKENS)))

    def throttled(self, retry_after_s: float | None) -> None:
        """Say that the service answered 429."""
        stated = retry_after_s is not None and math.isfinite(retry_after_s)
        if self.request.link is not None:
            self.request.link.say(throttled=self.request.key, after=max(0.0, retry_after_s or 0.0) if stated else None)


class SharedLimiter:
    """Lets requests of one event loop through as the server at `address` does; connects when it is first used.

    `serves`: where nobody listens there, this process does. One that takes over from a server that died waits until others
    have declared what they hold, and begins with nothing saved up. A server that can't be reached for `patience_s` seconds is
    a ServerUnavailable for all who wait.
    """

    def __init__(
        self,
        limits: RateLimitConfig,
        *,
        name: str,
        address: str,
        token: str = "",
        serves: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._host, self._port = split_address(address)
        self._address = address
        self._greeting = {"name": name, "limits": limits.model_dump(exclude=WHERE), "token": token}
        self._token = token
        self._serves = serves
        self._patience_s = patience_s
        self._keys = itertools.count()
        self._requests: dict[int, Request] = {}
        self._link: Link | None = None
        self._linking: asyncio.Future[RewardLoopError | None] | None = None
        self._was_linked = self._closed = False
        self._hosted: HostedServer | None = None

    @property
    def is_serving(self) -> bool:
        """Whether this process is the one that serves the limit."""
        return self._hosted is not None

    @asynccontextmanager
    async def reserve(self, tokens: int | None = None) -> AsyncGenerator[Reservation]:
        """Wait until a request with so many tokens (None: the estimate) may go."""
        request = Request(next(self._keys), checked(tokens), asyncio.get_running_loop().create_future())
        self._requests[request.key] = request
        try:
            with waiting():
                await self._let_through(request)
            yield SharedReservation(request)
        finally:
            del self._requests[request.key]
            if request.link is not None:
                request.link.say(leave=request.key)

    async def close(self) -> None:
        """Give everything back and hang up; whoever waits gets an error."""
        self._closed = True
        for request in self._requests.values():
            request.settle(granted=False)
        if self._link is not None:
            await self._link.close()
        if self._hosted is not None:
            await self._hosted.stop()

    async def _let_through(self, request: Request) -> None:
        while not request.granted:
            link = await self._linked()
            if request.link is not link:
                request.tell(link)
            await request.go
            if request.refusal is not None:
                raise request.refusal

    async def _linked(self) -> Link:
        """Return the connection; the first who needs one makes it, for all."""
        while self._link is None or self._closed:
            if self._closed:
                raise closed()
            if self._linking is not None:
                if (error := await asyncio.shield(self._linking)) is not None:
                    raise error
                continue
            linking = self._linking = asyncio.get_running_loop().create_future()
            try:
                self._adopt(await self._connect())
            except RewardLoopError as error:
                linking.set_result(error)
                raise
            finally:
                self._linking = None
                if not linking.done():  # connected, or cancelled: then another one goes on
                    linking.set_result(None)
        return self._link

    def _adopt(self, link: Link) -> None:
        self._link = link
        self._was_linked = True
        for request in self._requests.values():
            request.tell(link)

    async def _connect(self) -> Link:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience_s
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                return await Link.open(self._host, self._port, self._go, self._lost, **self._greeting)
            except (OSError, WireError) as error:
                failure = error
            if await self._takes_over():
                continue
            if self._closed or loop.time() >= give_up_at:
                raise self._unavailable(failure)
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads clients, guards nothing
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def _takes_over(self) -> bool:
        if not self._serves or self._hosted is not None:
            return False
        hosted = HostedServer(LimitServer(self._host, self._port, token=self._token, takes_over=self._was_linked))
        try:
            await hosted.start()
        except OSError:  # another process was faster, or the address is another machine's
            return False
        self._hosted = hosted
        return True

    def _go(self, key: int) -> None:
        if request := self._requests.get(key):
            request.settle(granted=True)

    def _lost(self, link: Link) -> None:
        if self._link is link:
            self._link = None
            for request in self._requests.values():
                request.refusal = link.refusal
                request.settle(granted=False)

    def _unavailable(self, failure: Exception) -> ServerUnavailable:
        return ServerUnavailable(
            f"rate limit {self._greeting['name']!r} at {self._address} can't be reached: {failure or type(failure).__name__}; "
            "check reward_model.rate_limit.address and that the process which serves it runs"
        )
