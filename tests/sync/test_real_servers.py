"""Real vLLM servers serve what was published: by every plane of the CPU, in every mode, on one server and on two."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, Qwen2ForSequenceClassification

from recipes import tiny_models
from reward_loop.errors import WeightSyncError
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.serving.command import command_of
from reward_loop.serving.port import ReservedPort
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.lora import merged_state_dict
from reward_loop.sync.server_call import call
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.vllm_servers import MAX_TOKENS, VLLMServers

pytestmark = pytest.mark.vllm

TEXTS = ["What is 6 * 7?", "The answer is 42.", "Der Fuchs springt über den Zaun. 🦊"]
Process = subprocess.Popen[bytes]
LORA, HEAD_ONLY = RewardModelTrainingMode.LORA, RewardModelTrainingMode.HEAD_ONLY


@pytest.fixture(scope="module")
def model(vllm_servers: VLLMServers) -> str:
    return vllm_servers.model("reward", tiny_models.reward_model)


@pytest.fixture(scope="module")
def starting(vllm_servers: VLLMServers, model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """A vLLM as it comes, without any plugin of ours, and its address; it may not listen yet."""
    del vllm_servers  # it skips where there is no vLLM
    run_dir, port = tmp_path_factory.mktemp("stock"), ReservedPort("127.0.0.1")
    options = {"enforce_eager": True, "worker_cls": None, "weight_transfer_config": None}
    spec = ServerSpec(model, "stock", "discriminative", max_model_len=MAX_TOKENS, engine_kwargs=options)
    ours = command_of(spec, port.number, os.environ, run_dir=str(run_dir))
    arguments = list(ours.arguments)
    at = arguments.index("--middleware")
    del arguments[at : at + 2]
    environment = {**ours.environment, "VLLM_PLUGINS": "", "VLLM_SERVER_DEV_MODE": "1"}
    with (run_dir / "log").open("w") as log:
        server = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield server, f"http://127.0.0.1:{port.number}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        port.release()


@pytest.fixture(scope="module")
def servers(vllm_servers: VLLMServers) -> Sequence[VLLMServer]:
    return vllm_servers.synced()


def changed(model: str, seed: int) -> Any:
    """The served model with every weight moved."""
    untyped: Any = Qwen2ForSequenceClassification
    one = untyped.from_pretrained(model, dtype=torch.float32).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for parameter in one.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return one


def adapted(model: str, seed: int) -> Any:
    """The served model with adapters and a head that were trained."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], modules_to_save=["score"])
    one: Any = get_peft_model(changed(model, seed), config).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for parameter in one.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
    return one


def expected(model: Any, path: str) -> list[float]:
    """What transformers says that the texts are worth."""
    untyped: Any = AutoTokenizer
    tokenizer = untyped.from_pretrained(path)
    with torch.no_grad():
        return [model(**tokenizer(text, return_tensors="pt")).logits.item() for text in TEXTS]


def assert_serves(servers: Sequence[VLLMServer], version: int | None, scores: list[float]) -> None:
    for server in servers:
        client = VLLMRewardClient(base_url=server.url)
        assert client.score_batch_sync(TEXTS, normalize=False) == pytest.approx(scores, abs=1e-4)
        assert client.staleness.newest == version


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("plane", ["shm", "gloo", "directory"])
def test_after_each_mode_the_scores_are_those_of_transformers(
    servers: Sequence[VLLMServer], model: str, plane: str, count: int, tmp_path: Path
) -> None:
    some = servers[:count]
    publisher = create_reward_publisher(
        [server.url for server in some], plane=plane, directory=str(tmp_path), bucket_mb=1, timeout_s=60.0
    )
    full, lora = changed(model, seed=1), adapted(model, seed=2)
    report = publisher.publish(full.state_dict())
    assert (report.plane, len(report.replicas)) == (plane, count)
    assert_serves(some, report.version, expected(full, model))

    with torch.no_grad():
        full.score.weight += 1.0
    head = publisher.publish(full.state_dict(), training_mode=HEAD_ONLY)
    assert (head.nbytes, head.tensors) == (full.score.weight.nbytes, 1)
    assert_serves(some, report.version + 1, expected(full, model))

    publisher.publish(merged_state_dict(lora), training_mode=LORA)
    assert_serves(some, report.version + 2, expected(lora, model))
    assert list(tmp_path.iterdir()) == []


def test_a_client_syncs_its_server_and_knows_the_version(servers: Sequence[VLLMServer], model: str) -> None:
    client = VLLMRewardClient(base_url=servers[0].url, max_staleness=0, on_stale="raise")
    served = asyncio.run(client.get_model_version())
    one = changed(model, seed=3)
    assert client.sync_weights(one.state_dict(), version=served + 5) == str(served + 5)
    assert client.score_batch_sync(TEXTS, normalize=False) == pytest.approx(expected(one, model), abs=1e-4)
    assert asyncio.run(client.get_model_version()) == client.staleness.newest == served + 5


@pytest.fixture(scope="module")
def stock(starting: tuple[Process, str]) -> str:
    """Its address, once it is ready."""
    server, url = starting

    async def healthy() -> None:
        async with asyncio.timeout(300):
            while not (await call(url, "GET", "/health", timeout_s=5)).good:
                assert server.poll() is None
                await asyncio.sleep(0.2)

    asyncio.run(healthy())
    return url


def classified(url: str) -> list[float]:
    """What a server of vLLM itself says that the texts are worth."""
    body = {"model": "stock", "input": TEXTS, "use_activation": False}
    answer = asyncio.run(call(url, "POST", "/classify", body, timeout_s=60))
    return [one["probs"][0] for one in answer.body["data"]]


def test_a_stock_server_serves_what_was_published_too(stock: str, model: str, tmp_path: Path) -> None:
    publisher = create_reward_publisher(stock, directory=str(tmp_path), timeout_s=60.0)
    one = changed(model, seed=4)
    report = publisher.publish(one.state_dict())
    assert (report.version, report.plane) == (1, "checkpoint")
    assert classified(stock) == pytest.approx(expected(one, model), abs=1e-4)

    with pytest.raises(WeightSyncError, match=r"score\.weight has the shape \(2, 64\), the served one \(1, 64\)"):
        publisher.publish({"score.weight": torch.ones(2, 64)}, training_mode=HEAD_ONLY)
    assert classified(stock) == pytest.approx(expected(one, model), abs=1e-4)

    with torch.no_grad():
        one.score.weight += 1.0
    assert publisher.publish(one.state_dict(), training_mode=HEAD_ONLY).version == 2
    assert classified(stock) == pytest.approx(expected(one, model), abs=1e-4)
