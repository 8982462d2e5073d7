"""One test per defect of the implementation that this one replaces (D1 to D26 of its review): each would fail there."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from reward_loop import DataProto, RewardLoopManager, RewardLoopWorker, RewardManagerBase, load_config, register
from reward_loop.errors import DataError
from reward_loop.outcome import BatchFailed
from tests.fakes import config_of, text_batch, tiny_tokenizer
from tests.graders import gives_back_its_inputs
from tests.pipe import Pipe
from tests.results import rows

WAIT_S = 20.0


def score(function: Any, data: DataProto, **reward_model: Any) -> DataProto:
    with RewardLoopManager(config_of(reward_model=reward_model), compute_score=function) as manager:
        return manager.compute_rm_score(data)


def statuses(result: DataProto) -> list[str]:
    return rows(result, "reward_status")


def length(solution_str: str) -> float:
    return float(len(solution_str))


async def test_d1_the_last_output_of_a_trajectory_is_scored_by_its_true_length(tokenizer_path: str) -> None:
    first, last = (tiny_tokenizer()(text, add_special_tokens=False)["input_ids"] for text in ("a longer first one", "42"))
    width = len(first)
    responses = torch.tensor([first, last + [0] * (width - len(last))])
    prompts = torch.zeros(2, 9, dtype=torch.int64)
    # Each output's mask was made for its own prompt and padded at the end: its last columns say nothing of the response.
    masks = torch.zeros(2, 9 + width, dtype=torch.int64)
    masks[0, : 2 + len(first)] = 1
    masks[1, : 9 + len(last)] = 1
    lengths = {"response_len": [len(first), len(last)]}
    tensors = {"prompts": prompts, "responses": responses, "attention_mask": masks}
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    worker = RewardLoopWorker(config, compute_score=lambda solution_str: {"score": 1.0, "text": solution_str})
    result = await worker.compute_score(DataProto.from_dict(tensors, lengths))
    assert result["reward_extra_info"]["text"] == "42"
    with pytest.raises(DataError, match="response_len"):
        await worker.compute_score(DataProto.from_dict(tensors))


def test_d2_rollouts_that_share_an_extra_info_object_each_see_their_own_turns() -> None:
    async def turns(solution_str: str, extra_info: dict[str, Any]) -> float:
        await asyncio.sleep(0)
        return float(extra_info["num_turns"])

    shared = {"index": 1}
    data = text_batch(["x"] * 3, extra_info=[shared] * 3, __num_turns__=[1, 2, 3])
    assert rows(score(turns, data), "rm_scores") == [[1], [2], [3]]
    assert shared == {"index": 1}


def test_d5_samples_with_different_extra_info_neither_break_the_batch_nor_lose_keys() -> None:
    def judge(solution_str: str) -> dict[str, Any]:
        return {"score": 1.0, **({"timeout": True} if solution_str == "a" else {"parts": [1] * len(solution_str)})}

    result = score(judge, text_batch(["a", "bb", "ccc"]))
    assert rows(result, "timeout") == [True, None, None]
    assert rows(result, "parts") == [None, [1, 1], [1, 1, 1]]
    assert {"timeout", "parts"} < set(result.meta_info["reward_extra_keys"])


@pytest.mark.parametrize("bad", [math.nan, math.inf, "1.0", {"score": "high"}, {"no": "score"}, object()])
def test_d6_what_is_no_finite_number_is_an_error_of_its_sample(bad: object) -> None:
    result = score(lambda solution_str: bad if solution_str == "bad" else 1.0, text_batch(["a", "bad"]), on_error="mask")
    assert statuses(result) == ["ok", "error"]
    assert rows(result, "rm_scores") == [[1], [0]]


def test_d6_an_empty_response_gets_no_reward_in_its_padding(tokenizer_path: str) -> None:
    data = DataProto.from_dict({"responses": torch.ones(2, 3, dtype=torch.int64)}, {"response_len": [0, 2]})
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    with RewardLoopManager(config, compute_score=lambda solution_str: 1.0) as manager:
        result = manager.compute_rm_score(data)
    assert rows(result, "rm_scores") == [[0, 0, 0], [0, 1, 0]]
    assert statuses(result) == ["unscorable", "ok"]


class AsyncCallable:
    """Async, though `iscoroutinefunction` denies it."""

    async def __call__(self, solution_str: str) -> float:
        return float(len(solution_str))


def wrapper(solution_str: str) -> Awaitable[float]:
    return AsyncCallable()(solution_str)


@pytest.mark.parametrize("function", [AsyncCallable(), wrapper, partial(AsyncCallable())])
def test_d6_a_function_that_does_not_look_async_is_awaited(function: Any) -> None:
    assert rows(score(function, text_batch(["abc"])), "rm_scores") == [[3]]


def test_d7_old_and_new_keys_both_take_effect(tmp_path: Path, tokenizer_path: str) -> None:
    file = tmp_path / "function.py"
    file.write_text("def grade(solution_str, bonus): return 1.0 + bonus\n")
    overlong = {"enable": True, "len": 2, "penalty_factor": 1.0}
    config = load_config(
        {
            "custom_reward_function": {"path": str(file), "name": "grade"},
            "reward_model": {"reward_kwargs": {"overlong_buffer_cfg": overlong, "max_resp_len": 4}},
            "reward": {"reward_manager": {"name": "dapo"}, "custom_reward_function": {"reward_kwargs": {"bonus": 0.5}}},
            "actor_rollout_ref": {"model": {"path": tokenizer_path}},
        }
    )
    data = DataProto.from_dict({"responses": torch.ones(2, 4, dtype=torch.int64)}, {"response_len": [2, 3]})
    with RewardLoopManager(config) as manager:
        scores = rows(manager.compute_rm_score(data), "rm_scores")
    assert [sum(row) for row in scores] == [1.5, 1.0]  # the function, its kwargs and, half a buffer over, the penalty


def test_d7_a_managers_class_may_be_named_by_the_old_keys(tmp_path: Path) -> None:
    file = tmp_path / "manager.py"
    file.write_text(
        "from reward_loop import RewardManagerBase\n\n\n"
        "class Fixed(RewardManagerBase):\n"
        "    async def run_single(self, data):\n"
        "        return {'reward_score': 2.0}\n"
    )
    old = {"reward_loop_source": "importlib", "reward_loop_module_path": str(file), "reward_loop_class_name": "Fixed"}
    with RewardLoopManager({"reward_model": old}) as manager:
        assert rows(manager.compute_rm_score(text_batch(["x"])), "rm_scores") == [[2]]


def test_d8_a_manager_registered_in_this_process_is_found_by_its_name() -> None:
    @register("d8_here")
    class Here(RewardManagerBase):
        async def run_single(self, data: DataProto) -> dict[str, Any]:
            return {"reward_score": 8.0}

    assert rows(score(length, text_batch(["x"]), reward_manager={"name": "d8_here"}), "rm_scores") == [[8]]
    assert Here.__name__ == "Here"


def test_d12_one_failing_sample_leaves_the_others_their_rewards_and_the_manager_usable() -> None:
    ended: list[str] = []

    def fails_first(solution_str: str) -> float:
        if solution_str == "fails":
            raise ValueError(solution_str)
        ended.append(solution_str)
        return 1.0

    with RewardLoopManager({}, compute_score=fails_first) as manager:
        with pytest.raises(BatchFailed, match="sample 0: error: ValueError: fails") as failure:
            manager.compute_rm_score(text_batch(["fails", *"abcdefgh"]))
        assert sorted(ended) == list("abcdefgh")
        assert [outcome.status for outcome in failure.value.outcomes] == ["error"] + ["ok"] * 8
        assert rows(manager.compute_rm_score(text_batch(["x"])), "rm_scores") == [[1]]


def test_d13_a_failed_grader_is_not_a_wrong_answer() -> None:
    async def judge(solution_str: str) -> float:
        if solution_str == "slow":
            await asyncio.Event().wait()
        if solution_str == "down":
            raise ConnectionError("judge refused")
        return 0.0

    result = score(judge, text_batch(["wrong", "slow", "down"]), on_error="mask", timeout_s=0.1)
    assert statuses(result) == ["ok", "timeout", "error"]
    assert rows(result, "reward_mask") == [1, 0, 0]
    assert "ConnectionError: judge refused" in rows(result, "reward_message")[2]


def test_d21_equal_samples_are_judged_once_where_the_cache_is_on() -> None:
    calls: list[str] = []

    async def judge(solution_str: str) -> float:
        calls.append(solution_str)
        await asyncio.sleep(0)
        return float(len(solution_str))

    texts = ["a", "bb", "a", "a", "bb", "a"]
    data = text_batch(texts, reward_model=[{"ground_truth": "42"}] * 6, extra_info=[{}] * 6)
    result = score(judge, data, cache={"enable": True})
    assert [row[0] for row in rows(result, "rm_scores")] == [1, 2, 1, 1, 2, 1]
    assert Counter(calls) == {"a": 1, "bb": 1}


async def test_d22_a_batch_does_not_block_the_event_loop_that_awaits_it() -> None:
    caller_ran = threading.Event()

    def waits_for_the_caller(solution_str: str) -> float:
        return float(caller_ran.wait(WAIT_S))

    async def caller() -> None:
        await asyncio.sleep(0)
        caller_ran.set()

    with RewardLoopManager({}, compute_score=waits_for_the_caller) as manager:
        result, _ = await asyncio.gather(manager.compute_rm_score_async(text_batch(["x"])), caller())
    assert rows(result, "rm_scores") == [[1]]


def gives_back_all_inputs(
    data_sources: list[str], solution_strs: list[str], ground_truths: list[str], extra_infos: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    return list(map(gives_back_its_inputs, data_sources, solution_strs, ground_truths, extra_infos))


@pytest.mark.parametrize("name", ["naive", "dapo", "gdpo", "prime", "remote", "batch", "group"])
def test_d25_every_manager_hands_the_same_inputs_to_the_function(name: str) -> None:
    data = text_batch(
        ["a", "bb"],
        uid=["p", "p"],
        data_source=["s", "t"],
        extra_info=[{"index": 0}, {"index": 1}],
        tool_extra_fields=[{"tool": "python"}, None],
        __num_turns__=[2, 5],
        reward_scores=[None, {"format": 1.0}],
    )
    config = config_of(reward_model={"reward_manager": {"name": name}}, algorithm={"gdpo_reward_keys": ["score"]})
    function = gives_back_all_inputs if name in ("batch", "group") else gives_back_its_inputs
    with RewardLoopManager(config, compute_score=function) as manager:
        inputs = manager.compute_rm_score(data).non_tensor_batch["inputs"].tolist()
    for row in inputs:
        row["extra_info"].pop("experiment_name", None)  # what gdpo adds
    assert inputs == [
        {
            "data_source": "s",
            "solution_str": "a",
            "ground_truth": "truth 0",
            "extra_info": {"index": 0, "tool": "python", "num_turns": 2, "rollout_reward_scores": {}},
        },
        {
            "data_source": "t",
            "solution_str": "bb",
            "ground_truth": "truth 1",
            "extra_info": {"index": 1, "num_turns": 5, "rollout_reward_scores": {"format": 1.0}},
        },
    ]


@pytest.mark.parametrize(("name", "sizes"), [("group", [2, 1, 2]), ("batch", [3, 3, 3])])
def test_d26_a_function_may_compare_the_samples_of_a_group_or_a_batch(name: str, sizes: list[int]) -> None:
    def size(solution_strs: list[str]) -> list[float]:
        return [float(len(solution_strs))] * len(solution_strs)

    result = score(size, text_batch(["a", "b", "c"], uid=["p", "q", "p"]), reward_manager={"name": name})
    assert [row[0] for row in rows(result, "rm_scores")] == sizes


def test_d26_a_reward_may_be_given_per_token(tokenizer_path: str) -> None:
    data = DataProto.from_dict({"responses": torch.tensor([[2, 3, 4], [5, 6, 0]])}, {"response_len": [3, 2]})
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    with RewardLoopManager(config, compute_score=lambda response_ids: [token / 4 for token in response_ids]) as manager:
        result = manager.compute_rm_score(data)
    assert rows(result, "rm_scores") == [[0.5, 0.75, 1.0], [1.25, 1.5, 0.0]]


# -- on Ray ----------------------------------------------------------------------------------------------------------


def notes_its_call(solution_str: str, path: Path) -> float:
    with path.with_name("calls").open("a") as calls:
        calls.write(f"{solution_str}\n")
    if solution_str == "slow":
        with path.open() as lines:
            lines.readline()
    return float(os.getpid())


@pytest.fixture(scope="module")
def three_workers(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RewardLoopManager, Pipe]]:
    pipe = Pipe(tmp_path_factory.mktemp("three_workers") / "pipe")
    config = config_of(reward_model={"executor": "ray", "num_workers": 3, "max_threads": 1})
    with RewardLoopManager(config, compute_score=partial(notes_its_call, path=pipe.path)) as manager:
        yield manager, pipe
    pipe.close()


@pytest.mark.ray
def test_d21_no_sample_is_scored_twice_to_fill_the_workers_up(three_workers: tuple[RewardLoopManager, Pipe]) -> None:
    manager, pipe = three_workers
    texts = [f"sample {row}" for row in range(10)]
    manager.compute_rm_score(text_batch(texts))
    assert sorted(pipe.path.with_name("calls").read_text().splitlines()) == sorted(texts)


@pytest.mark.ray
async def test_d21_a_worker_with_a_slow_sample_leaves_the_rest_to_the_others(
    three_workers: tuple[RewardLoopManager, Pipe],
) -> None:
    manager, pipe = three_workers
    ended = 0
    async for _ in manager.stream([text_batch([text]) for text in ("slow", *"x" * 30)]):
        ended += 1
        if ended == 29:  # of 31: the slow one, and the one that its worker had been handed besides
            pipe.say("go on")
    assert ended == 31


@pytest.mark.ray
def test_d8_a_manager_registered_in_the_driver_works_in_workers(ray_cluster: None) -> None:
    @register("d8_in_the_driver")
    class InTheDriver(RewardManagerBase):
        async def run_single(self, data: DataProto) -> dict[str, Any]:
            return {"reward_score": 8.0}

    ray = {"executor": "ray", "num_workers": 1}
    result = score(length, text_batch(["x"]), reward_manager={"name": "d8_in_the_driver"}, **ray)
    assert rows(result, "rm_scores") == [[8]]
    assert InTheDriver.__name__ == "InTheDriver"


@pytest.mark.ray
def test_d19_graders_take_no_cpus_from_the_trainer_and_their_number_is_not_squared(ray_cluster: None) -> None:
    import ray

    def free_cpus() -> float:
        return float(ray.available_resources()["CPU"])  # type: ignore[no-untyped-call]

    free = free_cpus()
    config = config_of(
        reward_model={
            "executor": "ray",
            "num_workers": 2,
            "reward_manager": {"name": "remote"},
            "reward_kwargs": {"num_processes": 1},
        }
    )
    with RewardLoopManager(config, compute_score=lambda solution_str: float(os.getpid())) as manager:
        graders = rows(manager.compute_rm_score(text_batch(["x"] * 20)), "rm_scores")
        assert free_cpus() == free
    assert len({pid for [pid] in graders}) == 1
