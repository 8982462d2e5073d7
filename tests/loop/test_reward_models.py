"""A reward model in the loop: real vLLM servers behind the router, against transformers, wherever samples are scored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from recipes import tiny_models
from reward_loop import DataProto, RewardLoopManager
from reward_loop.errors import ConfigError
from tests.vllm_servers import MAX_TOKENS, VLLMServers

pytestmark = pytest.mark.vllm

PROMPT = [{"role": "user", "content": "What is six times seven?"}]
TEXTS = ["It is 42.", "", "ü 🦊 七", "7" * 200, *(f"I count {number}." for number in range(40))]
BATCH = DataProto.from_dict(non_tensors={"solution_str": TEXTS, "raw_prompt": [PROMPT] * len(TEXTS)})


@pytest.fixture(scope="module")
def model(vllm_servers: VLLMServers) -> str:
    return vllm_servers.model("reward", tiny_models.reward_model)


@pytest.fixture(scope="module")
def expected(model: str) -> list[float]:
    """The logits by transformers, 0 for the empty response, which nobody judges."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForSequenceClassification.from_pretrained(model).eval()
    chats = [[*PROMPT, {"role": "assistant", "content": text}] for text in TEXTS]
    texts = tokenizer.apply_chat_template(chats, tokenize=False)
    with torch.inference_mode():
        ids = [torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]]) for text in texts]
        logits = [network(one).logits.item() for one in ids]
    return [logit if text else 0.0 for text, logit in zip(TEXTS, logits, strict=True)]


def settings(model: str, **more: Any) -> dict[str, Any]:
    """One small server of the model."""
    served = {"model": {"path": model}, "rollout": {"dtype": "float32", "max_model_len": MAX_TOKENS}, "replicas": 1}
    return {"reward_model": {"enable": True, **served, "server": {"cpu_kv_cache_mb": 64}, "on_error": "mask", **more}}


PLACES: dict[str, dict[str, Any]] = {
    "standalone": {"enable_resource_pool": True},
    "colocated": {"executor": "ray", "num_workers": 2},
}


@pytest.fixture(scope="module")
def managers(request: pytest.FixtureRequest, model: str) -> Iterator[dict[str, RewardLoopManager]]:
    """The managers that the session's tests ask for, started side by side: a server's start is the work of a single core."""
    wanted = {name for item in request.session.items if item.path == request.path for name in getattr(item, "fixturenames", ())}
    if "colocated" in wanted:
        request.getfixturevalue("ray_cluster")
    with ThreadPoolExecutor() as threads, ExitStack() as stack:
        starting = {name: threads.submit(RewardLoopManager, settings(model, **PLACES[name])) for name in wanted & PLACES.keys()}
        yield {name: stack.enter_context(manager.result()) for name, manager in starting.items()}


@pytest.fixture
def standalone(managers: dict[str, RewardLoopManager]) -> RewardLoopManager:
    """Servers of its own, awake all the time."""
    return managers["standalone"]


@pytest.fixture
def colocated(managers: dict[str, RewardLoopManager]) -> RewardLoopManager:
    """Workers on Ray, and servers that sleep while nobody scores."""
    return managers["colocated"]


def rewards(scored: DataProto) -> list[float]:
    scores = scored.tensor("rm_scores")
    assert scores is not None
    return scores.sum(-1).tolist()


def test_a_standalone_model_scores_a_batch_like_transformers(standalone: RewardLoopManager, expected: list[float]) -> None:
    scored = standalone.compute_rm_score(BATCH)
    assert rewards(scored) == pytest.approx(expected, abs=1e-4)
    assert scored.non_tensor_batch["reward_status"].tolist() == ["ok", "unscorable", *["ok"] * (len(TEXTS) - 2)]
    assert standalone.reward_model_manager is not None
    assert standalone.reward_model_manager.state == "awake"


async def test_a_stream_and_single_samples_get_the_same(standalone: RewardLoopManager, expected: list[float]) -> None:
    async def samples() -> AsyncIterator[DataProto]:
        for row in range(len(BATCH)):
            yield BATCH[row : row + 1]

    by_item = {scored.item: scored.outcome async for scored in standalone.stream(samples())}
    values = [outcome.reward.value if outcome.reward else 0.0 for _, outcome in sorted(by_item.items())]
    assert values == pytest.approx(expected, abs=1e-4)
    async with asyncio.TaskGroup() as tasks:
        singles = [tasks.create_task(standalone.compute_score(BATCH[row : row + 1])) for row in (0, 2, 3)]
    assert [single.result()["reward_score"] for single in singles] == pytest.approx(
        [expected[row] for row in (0, 2, 3)], abs=1e-4
    )


@pytest.mark.ray
def test_a_colocated_model_on_ray_wakes_scores_the_same_and_sleeps_again(
    colocated: RewardLoopManager, expected: list[float]
) -> None:
    models = colocated.reward_model_manager
    assert models is not None
    for _ in range(2):
        assert models.state == "asleep"
        assert rewards(colocated.compute_rm_score(BATCH)) == pytest.approx(expected, abs=1e-4)
    assert models.state == "asleep"


@pytest.mark.ray
def test_nobody_may_ask_the_workers_of_a_colocated_model_behind_its_back(colocated: RewardLoopManager) -> None:
    assert colocated.reward_loop_worker_handles is None


@pytest.mark.ray
async def test_a_colocated_model_sleeps_again_after_a_stream_that_was_left_early(colocated: RewardLoopManager) -> None:
    stream = colocated.stream(BATCH[row : row + 1] for row in range(len(BATCH)))
    first = await anext(stream)
    assert first.outcome.status in ("ok", "unscorable")
    await stream.aclose()
    assert colocated.reward_model_manager is not None
    assert colocated.reward_model_manager.state == "asleep"


@pytest.mark.ray
def test_a_colocated_model_sleeps_again_after_a_malformed_batch(colocated: RewardLoopManager) -> None:
    with pytest.raises(Exception, match="responses"):
        colocated.compute_rm_score(DataProto.from_dict(non_tensors={"raw_prompt": [PROMPT]}))
    assert colocated.reward_model_manager is not None
    assert colocated.reward_model_manager.state == "asleep"


def test_a_sample_without_its_prompt_fails_alone(standalone: RewardLoopManager, expected: list[float]) -> None:
    prompts = [PROMPT, None, PROMPT]
    data = DataProto.from_dict(non_tensors={"solution_str": [TEXTS[0]] * 3, "raw_prompt": prompts})
    scored = standalone.compute_rm_score(data)
    assert scored.non_tensor_batch["reward_status"].tolist() == ["ok", "error", "ok"]
    assert "raw_prompt" in scored.non_tensor_batch["reward_message"][1]
    assert rewards(scored) == pytest.approx([expected[0], 0.0, expected[0]], abs=1e-4)


def test_what_is_too_long_fails_alone_and_says_both_lengths(standalone: RewardLoopManager, expected: list[float]) -> None:
    data = DataProto.from_dict(non_tensors={"solution_str": ["7 " * MAX_TOKENS, TEXTS[0]], "raw_prompt": [PROMPT] * 2})
    scored = standalone.compute_rm_score(data)
    assert scored.non_tensor_batch["reward_status"].tolist() == ["error", "ok"]
    assert str(MAX_TOKENS) in scored.non_tensor_batch["reward_message"][0]
    assert rewards(scored) == pytest.approx([0.0, expected[0]], abs=1e-4)


def test_a_judge_without_a_function_is_refused_before_any_server_starts(vllm_servers: VLLMServers) -> None:
    judge = vllm_servers.model("judge", tiny_models.judge)
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"custom_reward_function\.path"):
        RewardLoopManager(settings(judge))
    assert time.monotonic() - started < 5.0


def test_a_pool_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward_model\.enable=false"):
        RewardLoopManager({}, rm_resource_pool=object())
