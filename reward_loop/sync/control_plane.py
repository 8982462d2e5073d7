"""The control plane: which servers an update goes to, and that they are awake while it does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from reward_loop.sync.replicas import Replicas
from reward_loop.sync.server_call import Access
from reward_loop.sync.servers import KnownServers, Servers


class ControlPlane:
    """Speaks to the servers of one model: those at these addresses ("host:port"), or those that `servers` finds.

    `token_env` is the environment variable with the bearer token that servers at fixed addresses want.
    """

    def __init__(self, servers: str | Sequence[str] | Servers, *, token_env: str | None = None) -> None:
        if isinstance(servers, Servers):
            self._servers = servers
        else:
            self._servers = KnownServers.at([servers] if isinstance(servers, str) else servers, Access(token_env))

    @asynccontextmanager
    async def reached(self, timeout_s: float) -> AsyncGenerator[Replicas]:
        """Give the servers as they are now, awake until the block is left."""
        async with self._servers.lease():
            urls = await self._servers.urls(timeout_s)
            yield Replicas(tuple(urls), self._servers.access)
