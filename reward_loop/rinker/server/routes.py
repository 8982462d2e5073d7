"""What groups of routes have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aiohttp import web

from reward_loop.rinker.server.bodies import read_body
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.wire.body import Body

BodyT = TypeVar("BodyT", bound=Body)

PREFIX = "/api/v1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Handler]
"""Method, path below PREFIX, and who answers."""


class Routes:
    """Routes about one kind of thing."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def table(self) -> Sequence[Route]:
        """Return the routes."""
        raise NotImplementedError

    async def body(self, request: web.Request) -> bytes:
        """Return a request's body. Raises Refusal and DataError."""
        return await read_body(request, self.hub.settings.max_body_mb << 20)

    async def read(self, request: web.Request, kind: type[BodyT]) -> BodyT:
        """Return what a request's body says. Raises Refusal and DataError."""
        return kind.read(await self.body(request))
