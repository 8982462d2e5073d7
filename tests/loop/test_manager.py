from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from reward_loop import DataProto, RewardLoopManager, load_config
from reward_loop.data import as_data_proto
from reward_loop.errors import ConfigError, DataError, RewardLoopError
from reward_loop.outcome import BatchFailed
from tests.fakes import config_of, text_batch, token_batch
from tests.results import rows

WAIT_S = 20.0


def length(solution_str: str) -> float:
    return float(len(solution_str))


def manager_for(function: Any, **reward_model: Any) -> RewardLoopManager:
    return RewardLoopManager(config_of(reward_model=reward_model), compute_score=function)


def scores(result: DataProto) -> list[Any]:
    return rows(result, "rm_scores")


# -- the ways to call it ---------------------------------------------------------------------------------------------


def test_a_batch_of_texts_goes_in_and_rewards_come_out() -> None:
    with manager_for(length) as manager:
        result = manager.compute_rm_score(text_batch(["a", "bb", ""]))
    assert scores(result) == [[1], [2], [0]]
    assert rows(result, "reward_mask") == [1, 1, 0]
    assert rows(result, "reward_status") == ["ok", "ok", "unscorable"]
    assert result.meta_info["reward_extra_keys"] == ["acc", "reward_status", "reward_message"]


def test_a_batch_of_token_ids_is_decoded_by_the_policys_tokenizer(tokenizer_path: str) -> None:
    config = {"actor_rollout_ref": {"model": {"path": tokenizer_path}}}
    data = token_batch(["#### 42", "#### 43"], data_source=["openai/gsm8k"] * 2, reward_model=[{"ground_truth": "42"}] * 2)
    with RewardLoopManager(config) as manager:
        result = manager.compute_rm_score(data)
    [right, wrong] = rows(result, "rm_scores")
    last = sum(rows(data, "attention_mask")[0][-len(right) :]) - 1
    assert right == [float(place == last) for place in range(len(right))]
    assert not any(wrong)


def test_the_reward_function_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text("def f(solution_str, bonus):\n    return len(solution_str) + bonus\n")
    config = {"custom_reward_function": {"path": str(file), "name": "f", "reward_kwargs": {"bonus": 0.5}}}
    with RewardLoopManager(config) as manager:
        assert scores(manager.compute_rm_score(text_batch(["abc"]))) == [[3.5]]


async def test_the_blocking_call_works_inside_a_running_loop() -> None:
    async def echo(solution_str: str) -> float:
        await asyncio.sleep(0)
        return 2.0

    with manager_for(echo) as manager:
        assert scores(manager.compute_rm_score(text_batch(["a"]))) == [[2]]


async def test_the_async_twin_gives_the_same() -> None:
    with manager_for(length) as manager:
        result = await manager.compute_rm_score_async(text_batch(["a", "bb"]))
        assert scores(result) == scores(manager.compute_rm_score(text_batch(["a", "bb"])))


async def test_one_sample_can_be_scored_alone() -> None:
    with manager_for(length) as manager:
        assert manager.reward_loop_worker_handles is None
        result = await manager.compute_score(text_batch(["abc"]))
        assert result["reward_score"] == 3.0
        assert result["reward_extra_info"]["reward_status"] == "ok"


async def test_of_one_trajectorys_outputs_only_the_last_is_scored() -> None:
    seen: list[str] = []

    def records(solution_str: str) -> float:
        seen.append(solution_str)
        return 1.0

    with manager_for(records) as manager:
        await manager.compute_score(text_batch(["first", "last"]))
        with pytest.raises(DataError, match="the batch is empty"):
            await manager.compute_score(text_batch([]))
    assert seen == ["last"]


async def test_one_failed_sample_raises_when_it_is_scored_alone() -> None:
    def fails(solution_str: str) -> float:
        raise ValueError(solution_str)

    with manager_for(fails) as manager, pytest.raises(BatchFailed, match="ValueError: abc"):
        await manager.compute_score(text_batch(["abc"]))


async def test_batches_are_scored_side_by_side() -> None:
    together = threading.Barrier(2, timeout=WAIT_S)

    def waits(solution_str: str) -> float:
        together.wait()
        return 1.0

    with manager_for(waits) as manager:
        results = await asyncio.gather(*(manager.compute_rm_score_async(text_batch(["a"])) for _ in range(2)))
    assert [scores(result) for result in results] == [[[1]], [[1]]]


# -- what comes in stays as it is ------------------------------------------------------------------------------------


@dataclass
class Foreign:
    """Shaped like verl's DataProto."""

    batch: Any = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)


def test_a_foreign_batch_comes_back_as_its_type() -> None:
    texts = np.array(["a", "bb"], dtype=object)
    data = Foreign(TensorDict({}, batch_size=[2]), {"solution_str": texts}, {"step": 3})
    with manager_for(length) as manager:
        result: Any = manager.compute_rm_score(cast("DataProto", data))
    assert type(result) is Foreign
    assert rows(as_data_proto(result), "rm_scores") == [[1], [2]]
    assert rows(as_data_proto(result), "acc") == [1, 2]
    assert result.meta_info["reward_extra_keys"] == ["acc", "reward_status", "reward_message"]


def test_the_callers_batch_is_not_written_to(tokenizer_path: str) -> None:
    def scribbles(solution_str: str, extra_info: dict[str, Any], ground_truth: dict[str, Any]) -> dict[str, Any]:
        extra_info["seen"] = solution_str
        extra_info["nested"].append("more")
        ground_truth["target"].clear()
        return {"score": 1.0, "info": extra_info}

    def batch() -> DataProto:
        return token_batch(
            ["a", "b"],
            extra_info=[{"nested": ["x"]}, {"nested": ["y"]}],
            reward_model=[{"ground_truth": {"target": ["t"]}}] * 2,
            tool_extra_fields=[{"turns": [1]}, None],
        )

    data = batch()
    names = (data.tensor_names(), data.column_names())
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    with RewardLoopManager(config, compute_score=scribbles) as manager:
        manager.compute_rm_score(data)
    fresh = batch()
    assert (data.tensor_names(), data.column_names(), data.meta_info) == (*names, fresh.meta_info)
    for name in data.tensor_names() + data.column_names():
        assert rows(data, name) == rows(fresh, name)


# -- mistakes in the configuration -----------------------------------------------------------------------------------


def custom(path: Path, **more: Any) -> dict[str, Any]:
    return {"custom_reward_function": {"path": str(path), **more}}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of reward functions that can't work."""
    for name, source in {
        "broken": "def compute_score(solution_str:\n",
        "raises": "import there_is_no_such_module\n",
        "needy": "def compute_score(solution_str, judge_url): ...\n",
        "blind": "def compute_score(ground_truth): ...\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


MISTAKES: dict[str, dict[str, Any]] = {
    "unknown reward manager 'naiv', did you mean 'naive'": {"reward_model.reward_manager": "naiv"},
    "there is no such file": {"custom_reward_function.path": "FILES/gone.py"},
    r"syntax error at .*broken\.py:1": {"custom_reward_function.path": "FILES/broken.py"},
    "there_is_no_such_module": {"custom_reward_function.path": "FILES/raises.py"},
    r"needs \['judge_url'\]": {"custom_reward_function.path": "FILES/needy.py"},
    r"takes no \['typo'\]": {
        "custom_reward_function.path": "FILES/needy.py",
        "custom_reward_function.reward_kwargs": "{judge_url: u, typo: 1}",
    },
    r"has no 'score'; it has \['compute_score'\]": {
        "custom_reward_function.path": "FILES/needy.py",
        "custom_reward_function.name": "score",
    },
    "takes nothing of the rollout": {"custom_reward_function.path": "FILES/blind.py"},
    "no tokenizer could be loaded from": {"actor_rollout_ref.model.path": "FILES/no_policy"},
    "reward_manager NaiveRewardManager: reward_kwargs.max_resp_len": {"reward_model.reward_kwargs.max_resp_len": 5},
    "no reward manager 'M'": {
        "reward_model.reward_manager": "{source: importlib, name: M, module: {path: FILES/needy.py}}",
    },
    r"has no config\.json": {"reward_model.enable": True, "reward_model.model.path": "FILES"},
    r"set custom_reward_function\.path": {
        "reward_model.enable": True,
        "reward_model.model.path": "FILES",
        "reward_model.model.kind": "generative",
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_cannot_work_is_a_config_error_when_the_manager_is_built(message: str, files: Path) -> None:
    before = set(threading.enumerate())
    overrides = [f"{key}={value}".replace("FILES", str(files)) for key, value in MISTAKES[message].items()]
    with pytest.raises(ConfigError, match=message):
        RewardLoopManager(load_config(overrides=overrides))
    assert set(threading.enumerate()) <= before


# -- batches that are malformed as a whole ---------------------------------------------------------------------------


def tensors(**changed: torch.Tensor) -> DataProto:
    columns = {"data_source": ["s", "s"], "reward_model": [{}, {}]}
    return DataProto.from_dict({"responses": torch.ones(2, 3, dtype=torch.int64), **changed}, columns)


MALFORMED = {
    "needs ground_truth, but the batch has no column 'reward_model'": text_batch(["a"], reward_model=None),
    "needs data_source": text_batch(["a"], data_source=None),
    "needs the tensor 'responses' .* or the column 'solution_str'": text_batch(["a"]).select(None, ["data_source"]),
    "solution_str must hold text; row 1 holds 5": text_batch(["a", "b"], solution_str=["a", 5]),
    "responses must hold integers; its dtype is torch.float32": tensors(responses=torch.ones(2, 3)),
    r"responses must be \[rows, tokens\]": tensors(responses=torch.ones(2, 3, 1, dtype=torch.int64)),
    "attention_mask has 2 columns": tensors(attention_mask=torch.ones(2, 2, dtype=torch.int64)),
    "attention_mask of row 1 has a 1 after a 0": tensors(attention_mask=torch.tensor([[1, 1, 0], [1, 0, 1]])),
    "response_len of row 1 is 4": tensors(response_len=torch.tensor([3, 4])),
}


@pytest.mark.parametrize("message", MALFORMED)
@pytest.mark.parametrize("use_reward_loop", [True, False])
def test_a_malformed_batch_is_one_data_error_and_nothing_of_it_is_scored(message: str, use_reward_loop: bool) -> None:
    calls: list[str] = []

    def judge(solution_str: str, ground_truth: object, data_source: str) -> float:
        calls.append(solution_str)
        return 1.0

    with manager_for(judge, use_reward_loop=use_reward_loop) as manager, pytest.raises(DataError, match=message):
        manager.compute_rm_score(MALFORMED[message])
    assert calls == []


def test_columns_of_different_lengths_never_become_a_batch() -> None:
    with pytest.raises(DataError, match=r"column .* has 2 rows, the batch has 1"):
        text_batch(["a", "b"], data_source=["s"])


def test_what_is_no_batch_is_a_data_error() -> None:
    with manager_for(length) as manager, pytest.raises(DataError, match="a dict is no batch"):
        manager.compute_rm_score(cast("DataProto", {"solution_str": ["a"]}))


def test_a_cell_that_is_wrong_costs_its_own_row() -> None:
    data = text_batch(["a", "b", "c"], extra_info=[{}, "text", None])
    for reward_model in ({}, {"use_reward_loop": False}):
        with manager_for(length, on_error="mask", **reward_model) as manager:
            result = manager.compute_rm_score(data)
        assert rows(result, "reward_status") == ["ok", "error", "ok"]
        assert rows(result, "reward_message")[1] == "DataError: extra_info must be a dict; it is 'text'"


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closing_twice_is_fine_and_calls_afterwards_say_that_it_is_closed() -> None:
    manager = manager_for(length)
    manager.close()
    manager.close()
    with pytest.raises(RewardLoopError, match="this manager was closed"):
        manager.compute_rm_score(text_batch(["a"]))


async def test_closing_ends_what_is_under_way_with_an_error_that_says_so() -> None:
    began = threading.Event()

    async def waits(solution_str: str) -> float:
        began.set()
        await asyncio.Event().wait()
        return 1.0

    manager = manager_for(waits)
    batch = asyncio.create_task(manager.compute_rm_score_async(text_batch(["a"])))
    await asyncio.to_thread(began.wait, WAIT_S)
    await asyncio.to_thread(manager.close)
    with pytest.raises(RewardLoopError, match="this manager was closed"):
        await batch


async def test_cancelling_the_caller_cancels_the_function() -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def waits(solution_str: str) -> float:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 1.0

    with manager_for(waits) as manager:
        batch = asyncio.create_task(manager.compute_rm_score_async(text_batch(["a"])))
        await asyncio.to_thread(began.wait, WAIT_S)
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        assert await asyncio.to_thread(cancelled.wait, WAIT_S)


def test_closing_leaves_no_thread_of_its_own_behind() -> None:
    before = set(threading.enumerate())
    with manager_for(length) as manager:
        manager.compute_rm_score(text_batch(["a"] * 10))
        started = set(threading.enumerate()) - before
        assert started
    for thread in started:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in started)


def test_an_interpreter_that_leaves_its_manager_open_still_ends_well() -> None:
    """Its threads are daemons, which abort the interpreter if they run on while it goes down."""
    script = (
        "import time\n"
        "from reward_loop import DataProto, RewardLoopManager\n"
        "def score(solution_str): time.sleep(0.005); return 1.0\n"
        "manager = RewardLoopManager({}, compute_score=score)\n"
        "data = DataProto.from_dict(non_tensors={'solution_str': ['a'] * 64})\n"
        "print(manager.compute_rm_score(data).batch['rm_scores'].sum().item())\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "64.0\n", "")


def test_rows_that_have_text_and_tokens_get_the_reward_of_the_text_at_the_last_token(tokenizer_path: str) -> None:
    data = token_batch(["one", "two"], solution_str=["right", "wrong"], response_len=[2, 0])
    with RewardLoopManager(config_of(), compute_score=lambda solution_str: float(solution_str == "right")) as manager:
        scored = manager.compute_rm_score(data)
    assert scored.tensor("rm_scores")[:, 1].tolist() == [1.0, 0.0]  # type: ignore[index]
    assert scored.column("reward_status").tolist() == ["ok", "unscorable"]  # type: ignore[union-attr]
