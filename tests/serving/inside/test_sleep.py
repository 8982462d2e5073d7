"""Servers that sleep: what it frees, and that nothing else changes."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from recipes import tiny_models
from reward_loop.serving.process_tree import below, resident_mb
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.vllm_servers import MAX_TOKENS, VLLMServers, ask

pytestmark = pytest.mark.vllm

CACHE_MB = 128
TEXTS = ["yes", "What is six times seven?", "seven " * 80]


@pytest.fixture
def big_server(vllm_servers: VLLMServers) -> VLLMServer:
    """A reward model with more than 200 MB of weights."""
    model = vllm_servers.model("big", functools.partial(tiny_models.reward_model, hidden=1024, layers=8))
    return vllm_servers.running(
        ServerSpec(model, "big", "discriminative", max_model_len=MAX_TOKENS, cpu_kv_cache_mb=CACHE_MB, can_sleep=True)
    )


async def post(server: VLLMServer, path: str) -> dict[str, Any]:
    """Tell the server something and return its reply."""
    status, reply = await ask(server.url, path, method="POST")
    assert status == 200, reply
    return reply


async def scores(server: VLLMServer, texts: list[str] = TEXTS) -> list[float]:
    """Return the scores of some texts."""
    status, reply = await ask(server.url, "/score", {"input": texts, "normalize": False})
    assert status == 200, reply
    return [item["score"] for item in reply["data"]]


def memory_mb(server: VLLMServer) -> float:
    """Return the memory of the server's processes, in MiB."""
    return resident_mb([server.pid, *below(server.pid)])


def weights_mb(server: VLLMServer) -> float:
    """Return the size of the server's weights, in MiB."""
    from safetensors import safe_open

    with safe_open(f"{server.spec.model}/model.safetensors", framework="pt") as weights:
        return float(sum(weights.get_tensor(name).nbytes for name in weights.keys())) / 2**20  # noqa: SIM118 - not a mapping


@pytest.mark.parametrize("level", [1, 2])
async def test_sleep_frees_the_weights_and_the_cache_and_waking_takes_them_back(big_server: VLLMServer, level: int) -> None:
    before, awake_mb = await scores(big_server), memory_mb(big_server)
    await post(big_server, f"/sleep?level={level}&mode=wait")
    asleep_mb = memory_mb(big_server)
    await post(big_server, "/wake_up")
    if level == 2:
        assert (await ask(big_server.url, "/score", {"input": "a"}))[0] == 409
        assert (await ask(big_server.url, "/collective_rpc", {"method": "reload_weights"}))[0] == 200
    assert weights_mb(big_server) > 200
    assert awake_mb - asleep_mb >= weights_mb(big_server) + CACHE_MB
    assert await scores(big_server) == pytest.approx(before, abs=1e-6)
    assert memory_mb(big_server) <= awake_mb + 0.2 * weights_mb(big_server)


async def test_a_sleeping_server_refuses_at_once_and_says_so(reward_server: VLLMServer) -> None:
    await post(reward_server, "/sleep?level=1")
    try:
        for path, body in (("/score", {"input": "a"}), ("/classify", {"input": "a"}), ("/score", {"text_1": "a", "text_2": "b"})):
            status, reply = await ask(reward_server.url, path, body)
            assert (status, reply["error"]["type"]) == (503, "asleep")
        status, health = await ask(reward_server.url, "/health")
        assert (status, health["asleep"]) == (200, True)
    finally:
        await post(reward_server, "/wake_up")
    assert (await ask(reward_server.url, "/health"))[1]["asleep"] is False


async def test_requests_that_meet_a_sleep_are_scored_or_refused(reward_server: VLLMServer) -> None:
    [right] = set(await scores(reward_server, TEXTS[:1]))
    seen = {200: asyncio.Event(), 503: asyncio.Event()}

    async def keep_asking() -> None:
        while True:
            status, reply = await ask(reward_server.url, "/score", {"input": TEXTS[:1] * 8, "normalize": False})
            assert status == 503 or {item["score"] for item in reply["data"]} == {right}
            seen[status].set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        asking = [group.create_task(keep_asking()) for _ in range(4)]
        for _ in range(3):
            for path, status in (("/sleep?level=1", 503), ("/wake_up", 200)):
                await post(reward_server, path)
                seen[status].clear()
                await seen[status].wait()
        for task in asking:
            task.cancel()


async def test_dropped_weights_are_never_used(reward_server: VLLMServer) -> None:
    before = await scores(reward_server)
    await post(reward_server, "/sleep?level=2")
    await post(reward_server, "/wake_up?tags=weights")
    assert (await ask(reward_server.url, "/score", {"input": "a"}))[1]["error"]["type"] == "asleep"
    await post(reward_server, "/wake_up?tags=kv_cache")
    for path in ("/score", "/classify", "/pooling"):
        status, reply = await ask(reward_server.url, path, {"input": "a"})
        assert (status, reply["error"]["type"]) == (409, "weights_dropped")
    assert (await ask(reward_server.url, "/collective_rpc", {"method": "reload_weights"}))[0] == 200
    assert await scores(reward_server) == before


async def test_weights_loaded_during_a_pause_leave_a_server_that_serves_on(reward_server: VLLMServer) -> None:
    before = await scores(reward_server)
    await post(reward_server, "/pause?mode=keep")
    assert (await ask(reward_server.url, "/collective_rpc", {"method": "reload_weights"}))[0] == 200
    await post(reward_server, "/resume")
    assert await scores(reward_server) == before


async def test_a_second_sleep_or_wake_changes_nothing(reward_server: VLLMServer) -> None:
    before = await scores(reward_server)
    for path in ("/wake_up", "/sleep?level=1", "/sleep?level=2", "/wake_up", "/wake_up"):
        await post(reward_server, path)
    assert await scores(reward_server) == before


async def test_a_process_model_scores_the_same_after_a_sleep(process_server: VLLMServer) -> None:
    body = {"input": f"one{tiny_models.STEP_TAG} two{tiny_models.STEP_TAG}"}
    before = await ask(process_server.url, "/score", body)
    await post(process_server, "/sleep?level=1")
    await post(process_server, "/wake_up")
    assert await ask(process_server.url, "/score", body) == before
