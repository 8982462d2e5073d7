"""The manager `rubric`: pipelines through the reward loop, on every executor, with the loop's own functions and models."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reward_loop import RewardLoopManager
from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError
from reward_loop.functions.model_reward import model_reward
from reward_loop.functions.tokenizers import load_tokenizer
from reward_loop.loop.worker import RewardLoopWorker
from reward_loop.outcome import BatchFailed
from reward_loop.serving.server import VLLMServer
from tests.fakes import config_of, text_batch
from tests.results import rows
from tests.rubrics.judges.processes import free_port

RUBRICS = """
import asyncio
import os
import threading
from reward_loop.rubrics import Rubric

class Even(Rubric):
    scale = (0, 10)

    def forward(self, action, observation):
        return 10 if len(action.message) % 2 == 0 else 0

async def has_answer(action, ground_truth):
    return {"score": float(ground_truth in action.message), "seen": ground_truth}

def broken(action):
    if "boom" in action.message:
        raise ValueError("it can't be read")
    return float("nan") if "nan" in action.message else 0.5

def hangs(action):
    if "hang" in action.message:
        threading.Event().wait(20)
    return 1.0

async def hangs_async(action):
    if "hang" in action.message:
        await asyncio.Event().wait()
    return 1.0

def writes(extra_info):
    extra_info["seen"] = True
    return 1.0
"""


@pytest.fixture
def rubrics(tmp_path: Path) -> str:
    file = tmp_path / "rubrics.py"
    file.write_text(RUBRICS)
    return str(file)


def entry(name: str, rubric: str, weight: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"name": name, "rubric": rubric, "weight": weight, **fields}


def configured(*entries: Mapping[str, Any], model: Mapping[str, Any] | None = None, **kwargs: Any) -> RewardLoopConfig:
    pipeline = {"schema_version": "1.0", "episode_end": list(entries)}
    settings = {"reward_manager": "rubric", "reward_kwargs": {"pipeline": pipeline, **kwargs}, **(model or {})}
    return config_of(reward_model=settings)


def batch(*texts: str) -> Any:
    truths = [{"ground_truth": "42"}] * len(texts)
    return text_batch(texts, data_source=["openai/gsm8k"] * len(texts), reward_model=truths)


TEXTS = ("it is #### 42", "so it is #### 42", "seven", "what")


@pytest.mark.parametrize("path", ["loop", "in order", pytest.param("ray", marks=[pytest.mark.ray])])
def test_the_rewards_are_the_same_on_every_path(rubrics: str, path: str, request: pytest.FixtureRequest) -> None:
    if path == "ray":
        request.getfixturevalue("ray_cluster")
    ways: dict[str, dict[str, Any]] = {
        "loop": {},
        "in order": {"use_reward_loop": False},
        "ray": {"executor": "ray", "num_workers": 2},
    }
    entries = [
        entry("even", f"{rubrics}:Even", 0.5),
        entry("answer", f"{rubrics}:has_answer", 2.0),
        entry("rule", "builtin.rule"),
    ]
    with RewardLoopManager(configured(*entries, model=ways[path])) as manager:
        scored = manager.compute_rm_score(batch(*TEXTS))
    assert [score for [score] in rows(scored, "rm_scores")] == [3.0, 3.5, 0.0, 0.5]
    columns = scored.non_tensor_batch
    assert columns["reward_components"][1] == {"even": 1.0, "answer": 1.0, "rule": 1.0}
    assert columns["reward_weights"][0] == {"even": 0.5, "answer": 2.0, "rule": 1.0}
    assert columns["answer.seen"].tolist() == ["42"] * 4
    assert columns["config_version"].tolist() == [1] * 4


def test_a_rubric_that_raises_or_gives_nan_fails_its_sample_by_name_and_no_other(rubrics: str) -> None:
    entries = [entry("even", f"{rubrics}:Even"), entry("shaky", f"{rubrics}:broken")]
    with RewardLoopManager(configured(*entries)) as manager:
        with pytest.raises(BatchFailed, match="2 of 4 samples failed") as failed:
            manager.compute_rm_score(batch("boom", "nan!", "fine", "good"))
        assert [outcome.status for outcome in failed.value.outcomes] == ["error", "error", "ok", "ok"]
        assert "shaky" in failed.value.outcomes[0].message
        assert "it can't be read" in failed.value.outcomes[0].message
        assert "shaky" in failed.value.outcomes[1].message
        assert rows(manager.compute_rm_score(batch("fine")), "rm_scores") == [[1.5]]


@pytest.mark.parametrize("hanging", ["hangs", "hangs_async"])
def test_a_rubric_that_hangs_is_named_where_the_samples_deadline_ends_it(rubrics: str, hanging: str) -> None:
    entries = [entry("even", f"{rubrics}:Even"), entry("stuck", f"{rubrics}:{hanging}"), entry("shaky", f"{rubrics}:broken")]
    with RewardLoopManager(configured(*entries, model={"timeout_s": 0.3, "on_error": "mask"})) as manager:
        scored = manager.compute_rm_score(batch("hang", "fine"))
    assert scored.non_tensor_batch["reward_status"].tolist() == ["timeout", "ok"]
    message = scored.non_tensor_batch["reward_message"][0]
    assert "(reward_model.timeout_s): rubric stuck had not ended" in message
    assert rows(scored, "rm_scores")[1] == [2.5]


def test_a_rubric_may_let_the_sample_go_on_or_mask_it(rubrics: str) -> None:
    going_on = [entry("even", f"{rubrics}:Even"), entry("shaky", f"{rubrics}:broken", on_error={"value": 0.25})]
    with RewardLoopManager(configured(*going_on)) as manager:
        scored = manager.compute_rm_score(batch("boom", "fine"))
    assert rows(scored, "rm_scores") == [[1.25], [1.5]]
    assert "can't be read" in scored.non_tensor_batch["rubric_failures"][0]["shaky"]

    masked = [entry("even", f"{rubrics}:Even"), entry("shaky", f"{rubrics}:broken", on_error="mask")]
    with RewardLoopManager(configured(*masked)) as manager:
        scored = manager.compute_rm_score(batch("boom", "fine"))
    assert rows(scored, "reward_mask") == [0.0, 1.0]
    assert scored.non_tensor_batch["reward_status"].tolist() == ["unscorable", "ok"]
    assert "shaky" in scored.non_tensor_batch["reward_message"][0]


def test_a_rubric_that_writes_into_the_sample_is_named_and_changes_nothing(rubrics: str) -> None:
    data = batch("fine")
    data.non_tensor_batch["extra_info"] = data.non_tensor_batch["data_source"].copy()
    data.non_tensor_batch["extra_info"][0] = {"index": 1}
    with RewardLoopManager(configured(entry("even", f"{rubrics}:Even"), entry("writer", f"{rubrics}:writes"))) as manager:
        scored = manager.compute_rm_score(data)
    assert scored.non_tensor_batch["rubrics_that_mutated"][0] == ["writer"]
    assert data.non_tensor_batch["extra_info"][0] == {"index": 1}


def test_the_custom_reward_function_is_a_rubric(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "def compute_score(solution_str, bonus=0.0):\n    return len(solution_str) / 10 + bonus\n"
    )
    pipeline = {"episode_end": [entry("mine", "builtin.custom", 2.0)], "schema_version": "1.0"}
    config = config_of(
        reward_model={"reward_manager": "rubric", "reward_kwargs": {"pipeline": pipeline}},
        custom_reward_function={"path": str(tmp_path / "reward.py"), "reward_kwargs": {"bonus": 0.1}},
    )
    with RewardLoopManager(config) as manager:
        assert rows(manager.compute_rm_score(batch("four")), "rm_scores") == [[1.0]]


def test_a_function_that_asks_for_a_process_gets_one_and_a_rule_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "import os\nfrom reward_loop.functions.isolated import isolated\n\n"
        "@isolated('process')\ndef compute_score(solution_str):\n    return {'score': 1.0, 'pid': os.getpid()}\n"
    )
    entries = [entry("mine", "builtin.custom"), entry("rule", "builtin.rule", config={"data_source": "mbpp"})]
    config = config_of(
        reward_model={
            "reward_manager": "rubric",
            "reward_kwargs": {"pipeline": {"schema_version": "1.0", "episode_end": entries}},
        },
        custom_reward_function={"path": str(tmp_path / "reward.py")},
    )
    data = text_batch(
        ["def double(x):\n    return 2 * x", "def double(x):\n    return x"],
        data_source=["any"] * 2,
        reward_model=[{"ground_truth": {"test_list": ["assert double(2) == 4"]}}] * 2,
    )
    with RewardLoopManager(config) as manager:
        scored = manager.compute_rm_score(data)
    assert rows(scored, "rm_scores") == [[2.0], [1.0]]
    assert os.getpid() not in scored.non_tensor_batch["mine.pid"]
    assert scored.non_tensor_batch["rule.verdict"].tolist() == ["passed", "failed"]


def test_judges_are_asked_and_what_they_cost_is_told(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "def judged(text):\n"
        "    if 'mumble' in text:\n        return {'reasoning': 'what?'}\n"
        "    return {'score': 0.5, 'usage': {'calls': 1, 'prompt_tokens': 7, 'completion_tokens': 2, 'cost': 0.25}}\n"
    )
    services = {"tone": {"type": "inproc", "function": f"{tmp_path}/judge.py:judged"}}
    judged = entry("tone", "builtin.mcp", 2.0, config={"service": "tone", "arguments": {"text": "{completion}"}})
    pipeline = {"schema_version": "1.0", "episode_end": [judged], "mcp_services": services}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(pipeline))
    kwargs = {"pipeline": str(tmp_path / "pipeline.yaml")}
    with RewardLoopManager(config_of(reward_model={"reward_manager": "rubric", "reward_kwargs": kwargs})) as manager:
        assert rows(manager.compute_rm_score(batch("good")), "rm_scores") == [[1.0]]
    with RewardLoopManager(configured(judged, mcp_services=services)) as manager:
        scored = manager.compute_rm_score(batch("good"))
        assert rows(scored, "rm_scores") == [[1.0]]
        used = [scored.non_tensor_batch[f"judge_{what}"][0] for what in ("calls", "prompt_tokens", "completion_tokens", "cost")]
        assert used == [1, 7, 2, 0.25]
        with pytest.raises(BatchFailed, match=r"rubric tone: .*gave no score") as failed:
            manager.compute_rm_score(batch("mumble", "good"))
        assert [outcome.status for outcome in failed.value.outcomes] == ["error", "ok"]


def test_a_cache_is_of_the_rubrics_in_the_file_and_not_of_weights_that_may_change(rubrics: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    cache = {"enable": True, "path": str(tmp_path / "cache")}
    for weight in (1.0, 0.5):
        file.write_text(json.dumps({"schema_version": "1.0", "episode_end": [entry("even", f"{rubrics}:Even", weight)]}))
        settings = {"reward_manager": "rubric", "reward_kwargs": {"pipeline": str(file)}, "cache": cache}
        with RewardLoopManager(config_of(reward_model=settings)) as manager:
            assert rows(manager.compute_rm_score(batch("good")), "rm_scores") == [[weight]]
    with pytest.raises(ConfigError, match="leave one of them out"):
        RewardLoopManager(configured(entry("even", f"{rubrics}:Even"), config_server={"port": 9}, model={"cache": cache}))


def test_a_mistake_in_the_pipeline_is_told_before_anything_is_scored(rubrics: str) -> None:
    with pytest.raises(ConfigError, match=r"wieght.*weight"):
        RewardLoopManager(configured({"name": "a", "rubric": "builtin.rule", "wieght": 1.0}))
    with pytest.raises(ConfigError, match=r"there is no rubric 'Evne' there, did you mean 'Even'\?"):
        RewardLoopManager(configured(entry("even", f"{rubrics}:Evne")))
    with pytest.raises(ConfigError, match=r"builtin\.reward_model asks a discriminative reward model, and none is served"):
        RewardLoopManager(configured(entry("rm", "builtin.reward_model")))
    with pytest.raises(ConfigError, match="allowed_prefixes"):
        RewardLoopManager(configured(entry("os", "os.path.join")))
    with pytest.raises(ConfigError, match="pipeline"):
        RewardLoopManager(config_of(reward_model={"reward_manager": "rubric"}))


async def test_weights_that_are_posted_hold_for_the_next_samples(rubrics: str) -> None:
    port = free_port()
    config = configured(entry("even", f"{rubrics}:Even"), config_server={"port": port})
    url = f"http://127.0.0.1:{port}/config"
    with RewardLoopManager(config) as manager:
        before = await manager.compute_rm_score_async(batch("good"))
        async with aiohttp.ClientSession() as session:
            async with session.post(url, json={"weights": {"even": 0.5}}) as reply:
                assert (reply.status, (await reply.json())["applies"]) == (200, "next_reset")
            async with session.post(url, json={"weights": {"odd": 0.5}}) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (400, "unknown_rubric")
        after = await manager.compute_rm_score_async(batch("good"))
    assert [rows(scored, "rm_scores") for scored in (before, after)] == [[[1.0]], [[0.5]]]
    assert [scored.non_tensor_batch["config_version"][0] for scored in (before, after)] == [1, 2]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
async def test_every_worker_takes_over_what_is_posted_to_the_one_that_serves(rubrics: str) -> None:
    port = free_port()
    ray: dict[str, Any] = {"executor": "ray", "num_workers": 2}
    config = configured(entry("even", f"{rubrics}:Even"), config_server={"port": port}, model=ray)
    with RewardLoopManager(config) as manager:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://127.0.0.1:{port}/config", json={"weights": {"even": 0.5}}) as reply,
        ):
            assert reply.status == 200
        async with asyncio.timeout(30):
            while True:
                scored = await manager.compute_rm_score_async(batch(*["good"] * 16))
                if set(scored.non_tensor_batch["config_version"]) == {2}:
                    break
    assert {score for [score] in rows(scored, "rm_scores")} == {0.5}


@pytest.mark.vllm
async def test_the_served_reward_model_is_a_rubric(reward_server: VLLMServer) -> None:
    spec = reward_server.spec
    served: dict[str, Any] = {
        "enable": True,
        "model": {"path": spec.model, "name": spec.name},
        "rollout": {"max_model_len": spec.max_model_len},
    }
    config = configured(entry("rm", "builtin.reward_model", 2.0, config={"scale": [-100.0, 100.0]}), model=served)
    address = reward_server.url.removeprefix("http://")
    prompt = [{"role": "user", "content": "What is six times seven?"}]
    worker = RewardLoopWorker(config, address)
    data = text_batch(["It is 42."], raw_prompt=[prompt], data_source=["x"], reward_model=[{"ground_truth": ""}])
    result = await worker.compute_score(data)
    alone = await model_reward(config, address, load_tokenizer)(solution_str="It is 42.", raw_prompt=prompt)
    assert result["reward_score"] == pytest.approx(2 * (alone["score"] + 100) / 200, abs=1e-5)
    assert result["reward_extra_info"]["rm.rm_tokens"] == alone["rm_tokens"]
    await worker.manager.aclose()
