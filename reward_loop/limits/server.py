"""The service over which any number of processes share limits, each known by a name.

Invariants: the first to name a limit sets it, and whoever names it with other settings is refused; a connection is a holder:
when it ends, what it waits for is forgotten and what it holds is given back; what one connection says can't harm another.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

from pydantic import ValidationError

from reward_loop.config import RateLimitConfig
from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.limits.address import is_loopback
from reward_loop.limits.gate import Clock, Gate
from reward_loop.limits.ledger import Ticket
from reward_loop.limits.wire import Lines, WireError, encode, key_of, seconds_of, tokens_of

WHERE = {"address", "token_env"}
"""The settings that say how to reach a limit, not what it is."""
MAX_LIMITS = 1000
"""Limits that one server keeps."""
UNREAD_BYTES = 1 << 23
"""What a client may leave unread."""
GREETING_S = 10.0
"""Seconds within which a client must have said which limit it wants."""

_BACKLOG = 1024


class LimitServer:
    """Serves limits while its context is entered; a port of 0 takes any that is free. `address` says where.

    `token` is a secret that every client must know; hosts other than this one can't be served without. `takes_over`: a
    server that is gone kept these limits before.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, token: str = "", clock: Clock | None = None, takes_over: bool = False
    ) -> None:
        if not token and not is_loopback(host):
            raise ConfigError(
                f"a limit that is served on {host!r} needs a token, for others can reach it there: set rate_limit.token_env"
            )
        self._host, self._port = host, port
        self._token = token.encode()
        self._clock = clock or Clock()
        self._takes_over = takes_over
        self._gates: dict[str, Gate] = {}
        self._holders: set[Holder] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen; OSError where that is impossible."""
        loop = asyncio.get_running_loop()
        # Not by the loop: where two processes bind one port at once, its create_server loses the socket that may not listen.
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        self._server = await loop.create_server(lambda: Holder(self.admit, self._holders), sock=listening)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Hang up on everyone."""
        if self._server is None:
            return
        self._server.close()
        for gate in self._gates.values():
            gate.close()
        holders = tuple(self._holders)
        for holder in holders:
            holder.hang_up()
        for holder in holders:
            await holder.gone
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        """host:port, for clients."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def admit(self, greeting: dict[str, Any]) -> Gate:
        """Return the limit that a client names; ConfigError if it may not use it."""
        match greeting:
            case {"name": str(name), "limits": dict(limits), "token": str(token)}:
                pass
            case _:
                raise WireError(f"a client begins with name, limits and token; this one said {list(greeting)!r:.200}")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            raise ConfigError("the token of the rate limit's server is another one; give every process the same")
        try:
            wanted = RateLimitConfig.model_validate(limits)
        except ValidationError as error:
            raise ConfigError(f"rate limit {name!r:.100}: {error.error_count()} settings are wrong: {error!s:.400}") from None
        return self._gate(name, wanted)

    def _gate(self, name: str, wanted: RateLimitConfig) -> Gate:
        gate = self._gates.get(name)
        if gate is None:
            if len(self._gates) >= MAX_LIMITS:
                raise ConfigError(f"the server keeps {MAX_LIMITS} limits already; use one of them instead of {name!r:.100}")
            gate = self._gates[name] = Gate(wanted, self._clock, takes_over=self._takes_over)
        if gate.limits != wanted:
            raise ConfigError(
                f"rate limit {name!r:.100} is in use with {_told(gate.limits)}, this process wants {_told(wanted)}; "
                "give every process the same settings, or this one another address"
            )
        return gate


class Holder(asyncio.Protocol):
    """One connection: a client and what it waits for and holds."""

    def __init__(self, admit: Callable[[dict[str, Any]], Gate], holders: set[Holder]) -> None:
        self._admit = admit
        self._holders = holders
        self._lines = Lines()
        self._gate: Gate | None = None
        self._tickets: dict[int, Ticket] = {}
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the greeting, for a while."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES)
        self._holders.add(self)
        watch_for_death(transport)
        self._patience = asyncio.get_running_loop().call_later(GREETING_S, self.hang_up)

    def data_received(self, data: bytes) -> None:
        """Do what the client says; hang up on one that is not understood."""
        if self._transport.is_closing():
            return
        try:
            for message in self._lines.feed(data):
                self._take(message)
        except RewardLoopError as error:
            self._transport.write(encode(refused=error.message, kind=type(error).__name__))
            self._transport.close()

    def pause_writing(self) -> None:
        """Hang up on a client that does not read what it is told."""
        self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the client held and forget what it waited for."""
        self._patience.cancel()
        self._holders.discard(self)
        if self._gate is not None:
            for ticket in reversed(self._tickets.values()):  # the last in line first, so that no place falls to the next
                self._gate.leave(ticket)
        self._tickets.clear()
        self.gone.set_result(None)

    def hang_up(self) -> None:
        """End the connection."""
        self._transport.abort()

    def _take(self, message: dict[str, Any]) -> None:
        if self._gate is None:
            self._gate = self._admit(message)
            self._patience.cancel()
            self._transport.write(encode(welcome=True))
            return
        match message:
            case {"held": key}:
                new = self._new(key)
                self._tickets[new] = self._gate.adopt()
            case {"ask": key, "tokens": tokens}:
                self._ask(self._gate, self._new(key), None if tokens is None else tokens_of(tokens))
            case {"used": key, "tokens": tokens}:
                if ticket := self._tickets.get(key_of(key)):
                    self._gate.settle(ticket, tokens_of(tokens))
            case {"throttled": key, "after": after}:
                if ticket := self._tickets.get(key_of(key)):
                    self._gate.throttle(ticket, None if after is None else seconds_of(after))
            case {"leave": key}:
                if ticket := self._tickets.pop(key_of(key), None):
                    self._gate.leave(ticket)
            case _:
                raise WireError(f"a client says held, ask, used, throttled or leave; this one said {list(message)!r:.200}")

    def _new(self, key: object) -> int:
        if key_of(key) in self._tickets:
            raise WireError(f"request {key!r:.80} asked already; give each its own number")
        return key_of(key)

    def _ask(self, gate: Gate, key: int, tokens: int | None) -> None:
        self._tickets[key] = gate.ask(tokens, lambda: self._transport.write(encode(go=key)))


def watch_for_death(transport: asyncio.BaseTransport) -> None:
    """Let a connection end within half a minute of its other end's machine, which can't hang up any more."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _told(limits: RateLimitConfig) -> str:
    return ", ".join(f"{name}={value}" for name, value in limits.model_dump(exclude=WHERE).items())
