"""Which request is answered by whom: an application in vLLM's place, a worker in its engine's."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reward_loop.serving.inside.admission import sent
from reward_loop.serving.inside.exchange import Message, Receive, Scope, Send
from reward_loop.serving.inside.identity import Identity
from reward_loop.serving.inside.middleware import Middleware, Served
from reward_loop.serving.inside.reply import Reply
from reward_loop.serving.inside.seed_routes import SEED_PATHS
from reward_loop.serving.inside.update_directory import UpdateDirectory
from reward_loop.serving.inside.update_engine import UpdateEngine
from reward_loop.serving.inside.update_routes import UPDATE_PATHS
from reward_loop.serving.inside.weight_updates import WeightUpdates
from tests.serving.inside.fake_worker import FakeWorker
from tests.serving.inside.updating import MANIFEST, Exchange


class Vllm:
    """An application that says that it was asked."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.startup.complete"})
            return
        body = (await receive())["body"].decode()
        await sent(Reply(200, {"vllm": scope["path"], "body": body}), send)


class Server(Middleware[FakeWorker]):
    """The middleware around it."""

    def __init__(self, directory: Path, *, syncs: bool = True, key: str | None = None) -> None:
        super().__init__(Vllm())
        self._directory = UpdateDirectory(directory)
        self._identity = Identity("cpu", syncs, "this machine", ())
        self._key = key
        self.worker = FakeWorker(self._directory)
        config = SimpleNamespace(timeout_graceful_shutdown=None)
        parallel = SimpleNamespace(world_size=2, world_size_across_dp=4)
        client = SimpleNamespace(vllm_config=SimpleNamespace(parallel_config=parallel))
        self.state = SimpleNamespace(server=SimpleNamespace(config=config), engine_client=client, serving_pooling=object())

    def served_by(self, state: Any) -> Served[FakeWorker]:
        engine = UpdateEngine(self.worker, dict, dict)
        updates = WeightUpdates(engine, self._directory, self.gate, self.residence, self.background, time.monotonic)
        return Served(self.worker, self._identity, updates, [self._key])

    async def score(self, scope: Scope, receive: Receive, send: Send) -> None:
        await sent(Reply(200, {"ours": "/score"}), send)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await sent(Reply(200, {"ours": "/health"}), send)

    async def ask(self, method: str, path: str, body: object = None, *, key: str | None = None) -> Exchange:
        """Send a request."""
        exchange = Exchange(body)
        path, _, query = path.partition("?")
        headers = [(b"authorization", f"Bearer {key}".encode())] if key is not None else []
        app = SimpleNamespace(state=self.state)
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers, "app": app}
        await self(scope, exchange.receive, exchange.send)
        return exchange

    async def start(self) -> list[Message]:
        """Begin to live; returns what the server's own loop is told."""
        told: list[Message] = []

        async def send(message: Message) -> None:
            told.append(message)

        await self({"type": "lifespan", "app": SimpleNamespace(state=self.state)}, Exchange().receive, send)
        return told


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    server = Server(tmp_path / "updates")
    yield server
    await server.background.close()


async def publish(server: Server, version: int, *, key: str | None = None) -> None:
    """Do a whole update."""
    session = {"session": "a"}
    for path, body in (
        ("/start_weight_update", session),
        ("/init_weight_transfer_engine", {"init_info": {**session, "ticket": {"plane": "gloo"}}}),
        (
            "/update_weights",
            {"update_info": {**session, "phase": "prepare", "manifest": MANIFEST, "mode": "full", "version": version}},
        ),
        ("/update_weights", {"update_info": {**session, "phase": "transfer"}}),
        ("/finish_weight_update", {**session, "weight_version": str(version)}),
    ):
        exchange = await server.ask("POST", path, body, key=key)
        assert exchange.status == 200, exchange.reply


@pytest.mark.parametrize(("method", "path"), [("POST", "/score"), ("GET", "/health")])
async def test_what_is_ours_is_answered_by_us(server: Server, method: str, path: str) -> None:
    assert (await server.ask(method, path)).reply == {"ours": path}


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/classify"), ("POST", "/pause"), ("GET", "/v1/models"), ("GET", "/score")]
)
async def test_what_is_vllms_is_answered_by_vllm(server: Server, method: str, path: str) -> None:
    assert (await server.ask(method, path)).reply["vllm"] == path


async def test_an_update_is_seen_in_every_reply_after_it(server: Server) -> None:
    runtime = {"version": 0, "device": "cpu", "host": "this machine", "gpus": [], "sync": True, "busy": None}
    assert (await server.ask("GET", "/runtime_version")).reply == runtime
    assert (await server.ask("POST", "/classify", {})).headers["x-reward-model-version"] == "0"
    await publish(server, 4)
    assert (await server.ask("GET", "/runtime_version")).reply == {**runtime, "version": 4}
    assert (await server.ask("POST", "/classify", {})).headers["x-reward-model-version"] == "4"
    assert "x-reward-model-version" not in (await server.ask("GET", "/v1/models")).headers


async def test_who_updates_is_seen_before_anybody_tries(server: Server) -> None:
    await server.ask("POST", "/start_weight_update", {"session": "a", "trainer": "41@here"})
    assert "41@here" in (await server.ask("GET", "/runtime_version")).reply["busy"]
    refused = await server.ask("POST", "/start_weight_update", {"session": "b"})
    assert (refused.status, refused.reply["error"]["type"]) == (409, "busy")


@pytest.mark.parametrize("path", sorted(UPDATE_PATHS | SEED_PATHS))
@pytest.mark.parametrize("key", [None, "wrong"])
async def test_who_updates_needs_the_servers_key(tmp_path: Path, path: str, key: str | None) -> None:
    server = Server(tmp_path, key="right")
    refused = await server.ask("POST", path, {"session": "a"}, key=key)
    assert (refused.status, refused.reply["error"]["type"]) == (401, "unauthorized")
    assert server.worker.calls == []


async def test_who_has_the_key_updates(tmp_path: Path) -> None:
    server = Server(tmp_path, key="right")
    await publish(server, 1, key="right")
    await server.background.close()


@pytest.mark.parametrize("path", sorted(UPDATE_PATHS))
async def test_a_server_with_another_engine_keeps_vllms_routes(tmp_path: Path, path: str) -> None:
    server = Server(tmp_path, syncs=False)
    body = {"update_info": {"names": ["a"]}}
    assert (await server.ask("POST", path, body)).reply == {"vllm": path, "body": json.dumps(body)}
    assert (await server.ask("GET", "/runtime_version")).reply["sync"] is False


@pytest.mark.parametrize("path", sorted(SEED_PATHS))
async def test_a_server_with_another_engine_has_not_the_seeds_routes(tmp_path: Path, path: str) -> None:
    refused = await Server(tmp_path, syncs=False).ask("POST", path, {})
    assert refused.status == 400
    assert "another --weight-transfer-config" in refused.reply["error"]["message"]


@pytest.mark.parametrize(("path", "size"), [("/get_world_size", 4), ("/get_world_size?include_dp=false", 2)])
async def test_the_world_has_its_size(server: Server, path: str, size: int) -> None:
    assert (await server.ask("GET", path)).reply == {"world_size": size}


async def test_a_server_that_starts_again_tells_its_engine_which_version_it_has(tmp_path: Path) -> None:
    server = Server(tmp_path)
    assert await server.start() == [{"type": "lifespan.startup.complete"}]
    assert server.worker.label == "default"
    await publish(server, 3)
    again = Server(tmp_path)
    await again.start()
    assert again.worker.label == "3"
    assert again.state.server.config.timeout_graceful_shutdown == 2


async def test_without_a_body_the_seed_may_ask(server: Server) -> None:
    assert (await server.ask("POST", "/get_num_background_tasks")).reply == {"num_background_tasks": 0, "last_error": None}
