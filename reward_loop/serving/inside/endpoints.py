"""The reward server's own endpoints, as one ASGI middleware of vLLM's server (its option --middleware).

POST /score, GET /health, /get_world_size and /runtime_version are answered here; everything else is vLLM's, except that nothing
is computed while the model can't compute, and that a pooling server is never told to abort what is in flight, which kills it.
Invariant: a body of /score without "input" is vLLM's own (text_1/text_2, queries/documents) and reaches it unchanged.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from vllm import envs
from vllm.exceptions import VLLMError
from vllm.v1.engine.exceptions import EngineDeadError

from reward_loop.serving.inside.engine import Engine
from reward_loop.serving.inside.exchange import App, HungUp, Message, Receive, Scope, Send, body_of, replayed, unless_hung_up
from reward_loop.serving.inside.keys import check_key
from reward_loop.serving.inside.reply import Refusal, Reply, bad_request
from reward_loop.serving.inside.residence import Residence, computes
from reward_loop.serving.inside.score_request import parsed

_CLOSING_S = 2
"""Seconds that clients have to take their replies once the server ends; without it, one that waits for ever keeps it alive."""
_VLLMS_OWN = ({"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"})


class RewardEndpoints:
    """The middleware: `--middleware reward_loop.serving.inside.endpoints.RewardEndpoints`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.residence = Residence()
        self._known: Engine | None = None
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to vLLM."""
        if scope["type"] == "lifespan":
            scope["app"].state.server.config.timeout_graceful_shutdown = _CLOSING_S
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            await self._http(scope, receive, send)
        except HungUp:
            pass
        except Refusal as refusal:
            await _sent(refusal.reply(), send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if computes(path):
            self.residence.check()
            with self._at_work():
                await self._compute(path, scope, receive, send)
            return
        match scope["method"], path:
            case "GET", "/health":
                await self._health(scope, receive, send)
            case "GET", "/get_world_size":
                await _sent(_world_size(scope), send)
            case "GET", "/runtime_version":
                await _sent(Reply(200, {"version": 0}), send)
            case "POST", "/sleep":
                await self._sleep(_without_abort(scope), receive, send)
            case "POST", "/pause":
                await self.app(_without_abort(scope), receive, send)
            case "POST", "/wake_up":
                await self._wake(scope, receive, send)
            case "POST", "/finish_weight_update" | "/collective_rpc":
                await self._sync(path, scope, receive, send)
            case _:
                await self.app(scope, receive, send)

    async def _compute(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope["method"], path) == ("POST", "/score"):
            await self._score(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _score(self, scope: Scope, receive: Receive, send: Send) -> None:
        check_key(scope["app"].state.args.api_key or [envs.VLLM_API_KEY], scope["headers"])
        raw = await body_of(receive)
        body = _json(raw)
        if "input" not in body and any(own <= body.keys() for own in _VLLMS_OWN):
            await self.app(scope, replayed(raw, receive), send)
            return
        engine = self._engine(scope)
        try:
            reply = await unless_hung_up(engine.score(parsed(body)), receive)
        except VLLMError as error:
            # Ends the server when its engine is dead, as for vLLM's own endpoints.
            response = await scope["app"].exception_handlers[VLLMError](Request(scope), error)
            await response(scope, receive, send)
        else:
            await _sent(reply, send)

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        engine = self._engine(scope)
        try:
            await engine.client.check_health()
        except EngineDeadError:
            await self.app(scope, receive, send)
        else:
            await _sent(Reply(200, {"status": "ok", **engine.about(), "asleep": self.residence.asleep}), send)

    async def _sleep(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a sleep; from its beginning on, nothing new is let in."""
        query = _query(scope)
        level = query.get("level", "1")
        was_asleep, self.residence.asleep = self.residence.asleep, level != "0"
        confirmed = False

        def done(_: bytes) -> None:
            nonlocal confirmed
            confirmed = True
            self.residence.dropped |= level == "2" and not was_asleep

        try:
            if query.get("mode") == "wait":
                await self._idle.wait()  # the engine knows only what has reached it: a text still tokenised would wait asleep
            await _passed_on(self.app, scope, receive, send, done)
        finally:
            if not confirmed:
                self.residence.asleep = was_asleep

    async def _wake(self, scope: Scope, receive: Receive, send: Send) -> None:
        def done(reply: bytes) -> None:
            self.residence.asleep = b'"awake"' not in reply  # with tags, a part may still sleep

        await _passed_on(self.app, scope, receive, send, done)

    async def _sync(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may bring dropped weights back."""
        body = await body_of(receive)
        syncs = path == "/finish_weight_update" or b'"reload_weights"' in body

        def done(_: bytes) -> None:
            self.residence.dropped &= not syncs

        await _passed_on(self.app, scope, replayed(body, receive), send, done)

    @contextmanager
    def _at_work(self) -> Generator[None]:
        """Count a request that needs the model."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._idle.set()

    def _engine(self, scope: Scope) -> Engine:
        if self._known is None:  # the first request: the server's state was not there when the middleware was made
            self._known = Engine.of(scope["app"].state)
        return self._known


async def _passed_on(app: App, scope: Scope, receive: Receive, send: Send, done: Callable[[bytes], None]) -> None:
    """Let vLLM answer; `done` gets the body of its 200 before it is sent, so that who has the reply finds what it says."""
    succeeded = False

    async def noted(message: Message) -> None:
        nonlocal succeeded
        if message["type"] == "http.response.start":
            succeeded = message["status"] == HTTPStatus.OK
        elif succeeded:
            done(message["body"])
            succeeded = False  # once: the replies are of one piece
        await send(message)

    await app(scope, receive, noted)


def _world_size(scope: Scope) -> Reply:
    parallel = scope["app"].state.engine_client.vllm_config.parallel_config
    whole = _query(scope).get("include_dp", "true").lower() in ("true", "1")
    return Reply(200, {"world_size": parallel.world_size_across_dp if whole else parallel.world_size})


def _without_abort(scope: Scope) -> Scope:
    """Return the request with mode=wait in place of mode=abort, vLLM's default, which kills a pooling server at work."""
    query = _query(scope)
    if getattr(scope["app"].state, "serving_pooling", None) is None or query.get("mode", "abort") != "abort":
        return scope
    return {**scope, "query_string": urlencode({**query, "mode": "wait"}).encode()}


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode()))


def _json(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request(f"the body is a JSON {type(body).__name__}, not an object")
    return body


async def _sent(reply: Reply, send: Send) -> None:
    for message in reply.messages():
        await send(message)
