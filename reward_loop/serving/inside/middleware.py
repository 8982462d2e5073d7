"""The ASGI middleware of a server, but for what it needs vLLM's own modules for: which request is answered by whom.

GET /get_world_size, GET /runtime_version and the routes of weight updates are answered here; POST /score and GET /health by who
derives from this; everything else is vLLM's, behind the doors of `admission`.
Invariants: the routes of updates want the server's key, if it has one; a server with another weight transfer engine than ours
leaves vLLM's routes to vLLM.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs

from reward_loop.serving.inside.admission import CONTROLS, Admission, sent
from reward_loop.serving.inside.background import Background
from reward_loop.serving.inside.exchange import App, HungUp, Message, Receive, Scope, Send, body_of
from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.identity import Identity
from reward_loop.serving.inside.keys import check_key
from reward_loop.serving.inside.reply import Refusal, Reply, bad_request
from reward_loop.serving.inside.residence import Residence, computes
from reward_loop.serving.inside.seed_routes import SEED_PATHS, SeedRoutes
from reward_loop.serving.inside.update_routes import UPDATE_PATHS, UpdateRoutes
from reward_loop.serving.inside.weight_updates import WeightUpdates

E = TypeVar("E")

_CLOSING_S = 2
"""Seconds that clients have to take their replies once the server ends; without it, one that waits for ever keeps it alive."""


@dataclass(frozen=True, slots=True)
class Served(Generic[E]):
    """What is known once the server's state is there."""

    engine: E
    identity: Identity
    updates: WeightUpdates
    keys: Collection[str | None]
    """Those that let requests in; none, or None, where everybody may ask."""


class Middleware(ABC, Generic[E]):
    """Around `app`, which is vLLM's; `E` is the engine behind it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.gate = Gate()
        self.residence = Residence()
        self.background = Background()
        self._admission = Admission(app, self.gate, self.residence)
        self._known: Served[E] | None = None
        self._seed_routes: SeedRoutes | None = None

    @abstractmethod
    def served_by(self, state: Any) -> Served[E]:
        """Return what there is to know of the server with this state (vLLM's `app.state`)."""

    @abstractmethod
    async def score(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer POST /score."""

    @abstractmethod
    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET /health."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to vLLM."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            try:
                await self._http(scope, receive, send)
            except HungUp:
                pass
            except Refusal as refusal:
                await sent(refusal.reply(), send)

    def served(self, scope: Scope) -> Served[E]:
        """Return what there is to know of the server: its state was not there when the middleware was made."""
        if self._known is None:
            self._known = self.served_by(scope["app"].state)
        return self._known

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin and end with the server."""
        scope["app"].state.server.config.timeout_graceful_shutdown = _CLOSING_S

        async def told(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                await self.served(scope).updates.announce()
            await send(message)

        try:
            await self.app(scope, receive, told)
        finally:
            await self.background.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if computes(path):
            work = self.score if (scope["method"], path) == ("POST", "/score") else self.app
            await self._admission.compute(work, lambda: self.served(scope).updates.version, scope, receive, send)
            return
        match scope["method"], path:
            case "GET", "/health":
                await self.health(scope, receive, send)
            case "GET", "/get_world_size":
                await sent(_world_size(scope), send)
            case "GET", "/runtime_version":
                served = self.served(scope)
                await sent(Reply(200, served.identity.runtime_version(served.updates.version, served.updates.busy())), send)
            case "POST", path if path in SEED_PATHS or (path in UPDATE_PATHS and self.served(scope).identity.syncs):
                await sent(await self._update(path, scope, receive), send)
            case "POST", path if path in CONTROLS:
                await self._admission.control(path, scope, receive, send)
            case _:
                await self.app(scope, receive, send)

    async def _update(self, path: str, scope: Scope, receive: Receive) -> Reply:
        served = self.served(scope)
        check_key(served.keys, scope["headers"])
        raw = await body_of(receive)
        body = json_of(raw) if raw else {}
        if path in UPDATE_PATHS:
            return await UpdateRoutes(served.updates).reply(path, body, receive)
        if not served.identity.syncs:
            raise bad_request(
                "this server was started with another --weight-transfer-config than ours: its weights can't be synced"
            )
        if self._seed_routes is None:
            plane = "nccl" if served.identity.device == "cuda" else "gloo"
            self._seed_routes = SeedRoutes(served.updates, self.background, plane)
        return await self._seed_routes.reply(path, body)


def json_of(raw: bytes) -> dict[str, Any]:
    """Return the object in a body; raises Refusal (400) for anything else."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request(f"the body is a JSON {type(body).__name__}, not an object")
    return body


def _world_size(scope: Scope) -> Reply:
    parallel = scope["app"].state.engine_client.vllm_config.parallel_config
    whole = parse_qs(scope["query_string"].decode()).get("include_dp", ["true"])[-1].lower() in ("true", "1")
    return Reply(200, {"world_size": parallel.world_size_across_dp if whole else parallel.world_size})
