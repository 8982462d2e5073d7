"""A client's connection to the server of a shared limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from reward_loop.errors import ConfigError, RewardLoopError, RewardServerError
from reward_loop.limits.server import watch_for_death
from reward_loop.limits.wire import Lines, WireError, encode, key_of

ATTEMPT_S = 5.0
"""Seconds within which a server must have accepted a connection and its greeting."""


class Link(asyncio.Protocol):
    """Calls `go` with each request that is let through, and `lost` once when the connection has ended."""

    def __init__(self, go: Callable[[int], None], lost: Callable[[Link], None]) -> None:
        self._go = go
        self._lost = lost
        self._lines = Lines()
        self._welcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self.refusal: RewardLoopError | None = None
        """Why the server, or this end, ended it."""

    @classmethod
    async def open(
        cls, host: str, port: int, go: Callable[[int], None], lost: Callable[[Link], None], **greeting: object
    ) -> Link:
        """Connect and be welcomed.

        Raises OSError where nobody listens or answers, WireError where no limit server does, and ConfigError where it refuses.
        """
        link = cls(go, lost)
        async with asyncio.timeout(ATTEMPT_S):
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: link, host, port)
            try:
                link.say(**greeting)
                await link._welcome
                if link._gone.is_set():
                    raise ConnectionResetError("it hung up")
            except BaseException:  # cancelled included: nobody else would close it
                transport.abort()
                raise
        return link

    def say(self, **message: object) -> None:
        """Send a message, unless the connection has ended."""
        if not self._transport.is_closing():
            self._transport.write(encode(**message))

    async def close(self) -> None:
        """Hang up, after what was said has been sent."""
        self._transport.close()
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await self._gone.wait()
        except TimeoutError:  # the server does not read any more
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        watch_for_death(transport)

    def data_received(self, data: bytes) -> None:
        """Do what the server says; hang up on one that is not understood."""
        try:
            for message in self._lines.feed(data):
                self._take(message)
        except RewardLoopError as error:
            self.refusal = error
            if not self._welcome.done():
                self._welcome.set_exception(error)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        if not self._welcome.done():
            self._welcome.set_exception(ConnectionResetError("it hung up"))
        self._gone.set()
        self._lost(self)

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"go": key}:
                self._go(key_of(key))
            case {"welcome": True}:
                if not self._welcome.done():
                    self._welcome.set_result(None)
            case {"refused": str(why), "kind": "ConfigError"}:
                raise ConfigError(why)
            case {"refused": str(why)}:
                raise RewardServerError(why)
            case _:
                raise WireError(f"a limit server says go, welcome or refused; this one said {list(message)!r:.200}")
