"""Where the servers of a model are: known, or found behind a router, anew for each update."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from reward_loop.errors import ConfigError, WeightSyncError
from reward_loop.sync.server_call import Access, call

_LONGEST_S = 10.0
_OPEN = Access()


@runtime_checkable
class Servers(Protocol):
    """The servers of one model."""

    @property
    def access(self) -> Access:
        """What lets requests in."""
        ...

    async def urls(self, timeout_s: float) -> Sequence[str]:
        """Return the address ("http://host:port") of each server that an update must reach; WeightSyncError if none is known."""
        ...

    def lease(self) -> AbstractAsyncContextManager[None]:
        """Keep them awake."""
        ...


@dataclass(frozen=True, slots=True)
class KnownServers:
    """Servers at fixed addresses, which are awake."""

    addresses: tuple[str, ...]
    access: Access = _OPEN

    @classmethod
    def at(cls, addresses: Sequence[str], access: Access) -> KnownServers:
        """Return the servers at these addresses, each once; ConfigError for none, and for what is no address."""
        if not addresses:
            raise ConfigError("servers=[] names no server to publish to")
        return cls(tuple(dict.fromkeys(url_of(address) for address in addresses)), access)

    async def urls(self, timeout_s: float) -> Sequence[str]:
        """Return the addresses."""
        del timeout_s
        return self.addresses

    def lease(self) -> AbstractAsyncContextManager[None]:
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class ServersBehind:
    """The server at an address, or all servers of a model behind it, where it is a router."""

    address: str
    model: str | None = None
    access: Access = _OPEN
    """What lets requests to the servers in."""
    admin: Access = _OPEN
    """What lets requests to the router's /admin in."""

    async def urls(self, timeout_s: float) -> Sequence[str]:
        """Ask the router; what is none has no /admin, and is the server itself."""
        answer = await call(self.address, "GET", "/admin/replicas", access=self.admin, timeout_s=min(timeout_s, _LONGEST_S))
        if answer.good and isinstance(replicas := answer.body.get("replicas"), list):
            return self._of_model(replicas)
        if answer.headers.get("X-Reward-Router"):
            raise WeightSyncError(
                f"{self.address} is a router, and an update goes to its servers, which it does not tell: {answer.said}; pass "
                "servers=[…], or admin_token_env, the environment variable with the router's admin_token"
            )
        return (self.address,)

    def lease(self) -> AbstractAsyncContextManager[None]:
        """Do nothing: whoever holds the manager holds the lease."""
        return nullcontext()

    def _of_model(self, replicas: Sequence[dict[str, Any]]) -> Sequence[str]:
        models = sorted({str(each["model"]) for each in replicas})
        if self.model is None and len(models) > 1:
            raise WeightSyncError(f"the router at {self.address} serves {', '.join(models)}: name the model (model_name)")
        urls = tuple(str(each["url"]) for each in replicas if self.model in (None, each["model"]))
        if not urls:
            raise WeightSyncError(f"the router at {self.address} has no server of {self.model!r}, but of {', '.join(models)}")
        return urls


def url_of(address: str) -> str:
    """Return "http://host:port" for a server's address, with or without a scheme and /v1; ConfigError for anything else."""
    url = address if "://" in address else f"http://{address}"
    parts = urlsplit(url.rstrip("/").removesuffix("/v1"))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ConfigError(f"a server's address is host:port, or http://host:port; it is {address!r:.200}")
    return parts.geturl().rstrip("/")
