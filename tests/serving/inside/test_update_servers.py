"""Updates of a real server, by HTTP: which version scored, also under load, and clients that vanish half way."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import torch
from safetensors.torch import load_file

from recipes import tiny_models
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.planes.choice import communicator_of
from tests.serving.inside.reference import Reference
from tests.serving.inside.trainer import Trainer
from tests.vllm_servers import MAX_TOKENS, VLLMServers, ask

pytestmark = pytest.mark.vllm

CLIENTS = 8
UPDATES = 10
HEAD = "score.weight"
TEXT = "What is six times seven?"


@pytest.fixture(scope="module")
def started(vllm_servers: VLLMServers) -> Iterator[VLLMServer]:
    """A server of this module's own: others expect the weights that theirs started with."""
    model = vllm_servers.model("reward", tiny_models.reward_model)
    server = vllm_servers.running(ServerSpec(model, "synced", "discriminative", max_model_len=MAX_TOKENS))
    yield server
    vllm_servers.stop(server)


class Synced:
    """The server, and the weights that it started with."""

    def __init__(self, server: VLLMServer) -> None:
        self.url = server.url
        self.weights = load_file(Path(server.spec.model) / "model.safetensors")
        self._expected = float(Reference(server.spec.model).logits(TEXT)[-1, 0])

    def head(self, factor: float) -> dict[str, torch.Tensor]:
        """A head that gives `factor` times the scores of the first one."""
        return {HEAD: self.weights[HEAD] * factor}

    async def version(self) -> int:
        return int((await ask(self.url, "/runtime_version"))[1]["version"])

    async def busy(self) -> str | None:
        busy: str | None = (await ask(self.url, "/runtime_version"))[1]["busy"]
        return busy

    async def score(self) -> tuple[float, int]:
        """Return the score of one text, and the version that gave it."""
        status, reply = await ask(self.url, "/score", {"input": TEXT, "normalize": False})
        assert status == 200, reply
        return reply["data"][0]["score"], reply["version"]

    async def has_score(self, factor: float, version: int) -> None:
        """Assert that this version serves, with this factor, and that nobody is about to change that."""
        score, scored_by = await self.score()
        assert (score, scored_by) == (self.expected(factor), version)
        assert await self.busy() is None

    def expected(self, factor: float) -> Any:
        """What transformers gives with such a head."""
        return pytest.approx(self._expected * factor, abs=1e-4)


@pytest.fixture
async def synced(started: VLLMServer) -> AsyncGenerator[Synced]:
    """The server with the weights that it started with, whatever the test before has left."""
    synced = Synced(started)
    yield synced
    await Trainer(synced.url, synced.weights, await synced.version() + 1).finished()


async def test_every_reply_says_which_version_scored(synced: Synced) -> None:
    first = await synced.version()
    for factor, version in ((2.0, first + 1), (3.0, first + 5)):
        assert (await Trainer(synced.url, synced.head(factor), version, mode="head_only").finished())["version"] == version
        await synced.has_score(factor, version)
        async with aiohttp.ClientSession() as session:
            for path in ("/score", "/classify", "/pooling"):
                async with session.post(synced.url + path, json={"input": "yes"}) as reply:
                    assert (path, reply.headers["X-Reward-Model-Version"]) == (path, str(version))
        assert await ask(synced.url, "/weight_info") == (200, {"weight_version": str(version)})


async def test_streams_say_it_too(judge_server: VLLMServer) -> None:
    body = {"messages": [{"role": "user", "content": "yes?"}], "max_tokens": 4, "stream": True}
    async with aiohttp.ClientSession() as session, session.post(judge_server.url + "/v1/chat/completions", json=body) as reply:
        assert (reply.status, reply.headers["X-Reward-Model-Version"]) == (200, "0")
        assert b"[DONE]" in await reply.read()


async def test_under_load_no_request_fails_and_each_is_scored_by_the_version_that_it_names(synced: Synced) -> None:
    first = await synced.version()
    factors = {first: 1.0} | {first + at: 1.0 + at for at in range(1, UPDATES + 1)}
    done = asyncio.Event()
    scored: list[tuple[float, int]] = []

    async def keep_scoring() -> None:
        while not done.is_set():
            scored.append(await synced.score())

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(keep_scoring())
        for version in list(factors)[1:]:
            await Trainer(synced.url, synced.head(factors[version]), version, mode="head_only").finished()
        done.set()
    assert {version for _, version in scored} >= set(list(factors)[:-1])
    for score, version in scored:
        assert score == synced.expected(factors[version])


async def test_a_client_that_vanishes_in_mid_finish_does_not_stop_the_commit(synced: Synced) -> None:
    version = await synced.version() + 1
    trainer = Trainer(synced.url, synced.head(2.0), version, mode="head_only")
    await trainer.received()
    await vanish(synced.url, "/finish_weight_update", trainer.finish, "commit")
    await until_not_busy(synced)
    await synced.has_score(2.0, version)


async def test_a_client_that_vanishes_while_it_sends_leaves_the_old_weights(synced: Synced) -> None:
    version = await synced.version()
    trainer = Trainer(synced.url, synced.head(2.0), version + 1, mode="head_only")
    await trainer.prepared()
    transfer = {"update_info": {"session": trainer.session, "phase": "transfer"}}
    await vanish(synced.url, "/update_weights", transfer, "transfer")
    await until_not_busy(synced)
    trainer.communicator.close()
    await synced.has_score(1.0, version)


async def test_a_second_trainer_is_told_to_wait_and_an_abort_lets_it_in(synced: Synced) -> None:
    version = await synced.version()
    trainer = Trainer(synced.url, synced.head(2.0), version + 1, mode="head_only")
    await trainer.received()
    status, reply = await ask(synced.url, "/start_weight_update", {"session": "other"})
    assert (status, reply["error"]["type"]) == (409, "busy")
    assert "a test updates the weights" in reply["error"]["message"]
    abort = {"update_info": {"session": trainer.session, "phase": "abort"}}
    assert (await ask(synced.url, "/update_weights", abort))[1]["aborted"]
    status, reply = await ask(synced.url, "/finish_weight_update", trainer.finish)
    assert (status, reply["error"]["type"]) == (409, "aborted")
    await synced.has_score(1.0, version)


async def test_a_whole_update_wakes_weights_that_were_dropped(synced: Synced) -> None:
    version = await synced.version() + 1
    assert (await ask(synced.url, "/sleep?level=2&mode=wait", method="POST"))[0] == 200
    assert (await ask(synced.url, "/start_weight_update", {"session": "a"}))[0] == 503
    assert (await ask(synced.url, "/wake_up?tags=weights", method="POST"))[0] == 200
    await Trainer(synced.url, synced.weights, version).finished()
    assert (await ask(synced.url, "/score", {"input": "yes"}))[0] == 503, "it still sleeps, but for its weights"
    assert (await ask(synced.url, "/wake_up?tags=kv_cache", method="POST"))[0] == 200
    await synced.has_score(1.0, version)


async def test_an_engine_that_others_paused_stays_paused_over_an_update(synced: Synced) -> None:
    version = await synced.version() + 1
    assert (await ask(synced.url, "/pause?mode=wait", method="POST"))[0] == 200
    await Trainer(synced.url, synced.head(2.0), version, mode="head_only").finished()
    assert await ask(synced.url, "/is_paused") == (200, {"is_paused": True})
    assert (await ask(synced.url, "/resume", method="POST"))[0] == 200
    await synced.has_score(2.0, version)


async def test_the_routes_of_the_seed_do_the_same(synced: Synced) -> None:
    version = await synced.version()
    port = free_port()
    trainer = Trainer(synced.url, synced.head(2.0), version + 1)
    trainer.communicator = communicator_of("gloo", port=port)
    trainer.communicator.open(trainer.manifest, 1, 60)
    assert (await ask(synced.url, "/init_communicator", {"host": "127.0.0.1", "port": port, "world_size": 2}))[0] == 200
    tensors = [{"name": HEAD, "dtype": "torch.float32", "shape": list(synced.weights[HEAD].shape)}]
    update = {"metadata": tensors, "training_mode": "head_only", "bucket_bytes": trainer.manifest.bucket_bytes}
    assert await ask(synced.url, "/update_param_batch", update) == (200, {"status": "ok"})
    await asyncio.to_thread(trainer.send)
    async with asyncio.timeout(60):
        while (said := (await ask(synced.url, "/get_num_background_tasks", {}))[1])["num_background_tasks"]:
            pass
    assert said["last_error"] is None
    await synced.has_score(2.0, version + 1)
    unknown = {**update, "metadata": [{**tensors[0], "name": "scor.weight"}]}
    status, reply = await ask(synced.url, "/update_param_batch", unknown)
    assert (status, reply["error"]["type"]) == (400, "refused")
    assert HEAD in reply["error"]["message"]


async def vanish(url: str, path: str, body: object, step: str) -> None:
    """Send a request, and be gone as soon as the server is seen to be at this step, or past it."""
    content = json.dumps(body)
    address = urlsplit(url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode())
    await writer.drain()
    async with asyncio.timeout(30):
        while (busy := (await ask(url, "/runtime_version"))[1]["busy"]) is not None and f"({step};" not in busy:
            pass
    writer.close()
    await writer.wait_closed()


def free_port() -> int:
    """Return a port that is free just now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


async def until_not_busy(synced: Synced) -> None:
    """Return when nobody updates the weights."""
    async with asyncio.timeout(60):
        while await synced.busy() is not None:
            pass
