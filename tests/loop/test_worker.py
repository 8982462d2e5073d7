from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from reward_loop import DataProto, RewardLoopWorker, RewardManagerBase
from reward_loop.errors import ConfigError, DataError, Unscorable
from reward_loop.outcome import BatchFailed
from tests.fakes import config_of, text_batch, token_batch

NUMBERS = {"one": 1.0, "two": 2.0}


def length(solution_str: str) -> float:
    return float(len(solution_str))


async def length_async(solution_str: str) -> float:
    await asyncio.sleep(0)
    return float(len(solution_str))


def worker_for(function: Any, **reward_model: Any) -> RewardLoopWorker:
    return RewardLoopWorker(config_of(reward_model=reward_model), compute_score=function)


async def values(worker: RewardLoopWorker, texts: Sequence[str]) -> list[float | str]:
    outcomes = await worker.score_rows(text_batch(texts))
    return [outcome.reward.value if outcome.reward else outcome.status for outcome in outcomes]


# -- compute_score and compute_score_batch ---------------------------------------------------------------------------


@pytest.mark.parametrize("function", [length, length_async])
async def test_one_sample_gets_its_reward_and_says_how_it_ended(function: Any) -> None:
    assert await worker_for(function).compute_score(text_batch(["four"])) == {
        "reward_score": 4.0,
        "reward_extra_info": {"acc": 4.0, "reward_status": "ok", "reward_message": "", "reward_mask": 1},
    }


@pytest.mark.parametrize("function", [length, length_async])
async def test_a_batch_gets_one_result_per_row_in_order(function: Any) -> None:
    results = await worker_for(function).compute_score_batch(text_batch(["a", "bbb", "cc"]))
    assert [result["reward_score"] for result in results] == [1.0, 3.0, 2.0]


async def test_a_dict_gives_the_score_and_the_extra_info() -> None:
    worker = worker_for(lambda solution_str: {"score": 0.5, "why": solution_str})
    result = await worker.compute_score(text_batch(["a"]))
    assert result["reward_score"] == 0.5
    assert result["reward_extra_info"]["why"] == "a"


async def test_a_config_may_be_a_mapping_and_errors_in_it_come_with_start() -> None:
    worker = RewardLoopWorker({"reward_model": {"num_wokers": 1}})
    with pytest.raises(ConfigError, match=r"did you mean reward_model\.num_workers"):
        await worker.start()


async def test_no_sample_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match="the batch is empty"):
        await worker_for(length).compute_score(text_batch([]))


# -- trajectories of several outputs ---------------------------------------------------------------------------------


async def test_of_several_outputs_the_last_one_is_scored() -> None:
    seen: list[str] = []

    def records(solution_str: str) -> float:
        seen.append(solution_str)
        return 1.0

    await worker_for(records).compute_score(text_batch(["first", "last"]))
    assert seen == ["last"]


async def test_several_outputs_as_tokens_need_their_lengths(tokenizer_path: str) -> None:
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    worker = RewardLoopWorker(config, compute_score=lambda solution_str: {"score": 1.0, "text": solution_str})
    outputs = token_batch(["a long first output", "ok"])
    with pytest.raises(DataError, match="response_len"):
        await worker.compute_score(outputs)
    lengths = outputs.tensor("attention_mask")
    responses = outputs.tensor("responses")
    assert lengths is not None
    assert responses is not None
    response_len = lengths[:, -responses.shape[1] :].sum(1)
    for given in (
        DataProto.from_dict({"responses": responses}, {**outputs.non_tensor_batch, "response_len": response_len.tolist()}),
        DataProto.from_dict({"responses": responses, "response_len": response_len}, outputs.non_tensor_batch),
    ):
        result = await worker.compute_score(given)
        assert result["reward_extra_info"]["text"] == "ok"


async def test_the_outputs_of_a_trajectory_in_a_batch_share_the_reward_of_the_last() -> None:
    data = text_batch(["aaa", "b", "cc", "dddd"], trajectory_id=["t", "u", "t", "t"])
    outcomes = await worker_for(length).score_rows(data)
    assert [outcome.reward and outcome.reward.value for outcome in outcomes] == [4.0, 1.0, 4.0, 4.0]


async def test_a_trajectory_whose_last_output_is_empty_is_unscorable() -> None:
    data = text_batch(["aaa", "", "cc"], trajectory_id=["t", "t", "u"])
    outcomes = await worker_for(length).score_rows(data)
    assert [outcome.status for outcome in outcomes] == ["unscorable", "unscorable", "ok"]


async def test_per_token_rewards_belong_to_the_last_output_and_earlier_ones_get_their_sum(tokenizer_path: str) -> None:
    config = config_of(actor_rollout_ref={"model": {"path": tokenizer_path}})
    worker = RewardLoopWorker(config, compute_score=lambda response_ids: [0.5] * len(response_ids))
    first, last = await worker.score_rows(token_batch(["a much longer output", "ok"], trajectory_id=["t", "t"]))
    assert first.reward is not None
    assert last.reward is not None
    assert last.reward.tokens == (0.5,) * len(last.reward.tokens or ())
    assert (first.reward.tokens, first.reward.value) == (None, last.reward.value)


# -- rows without a response -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward_manager", ["naive", "group", "batch"])
async def test_an_empty_response_is_unscorable_and_the_function_never_sees_it(reward_manager: str) -> None:
    seen: list[str] = []

    def many(solution_strs: list[str]) -> list[float]:
        seen.extend(solution_strs)
        return [1.0] * len(solution_strs)

    def one(solution_str: str) -> float:
        return many([solution_str])[0]

    worker = worker_for(one if reward_manager == "naive" else many, reward_manager={"name": reward_manager})
    outcomes = await worker.score_rows(text_batch(["a", "", "b", ""], uid=[1, 1, 1, 2]))
    assert [outcome.status for outcome in outcomes] == ["ok", "unscorable", "ok", "unscorable"]
    assert sorted(seen) == ["a", "b"]


async def test_none_and_unscorable_say_that_a_sample_cannot_be_judged() -> None:
    def judge(solution_str: str) -> float | None:
        if solution_str == "raises":
            raise Unscorable("no reference")
        return None

    results = await worker_for(judge).compute_score_batch(text_batch(["none", "raises"]))
    assert [result["reward_extra_info"]["reward_status"] for result in results] == ["unscorable"] * 2
    assert [result["reward_extra_info"]["reward_mask"] for result in results] == [0, 0]
    assert results[1]["reward_extra_info"]["reward_message"] == "Unscorable: no reference"


# -- failures --------------------------------------------------------------------------------------------------------


def look_up(solution_str: str) -> float:
    return NUMBERS[solution_str]


async def look_up_async(solution_str: str) -> float:
    await asyncio.sleep(0)
    return NUMBERS[solution_str]


@pytest.mark.parametrize("function", [look_up, look_up_async])
async def test_by_default_a_batch_raises_after_every_other_sample_has_ended(function: Any) -> None:
    with pytest.raises(BatchFailed, match=r"2 of 3 samples failed(.|\n)*sample 1: error: KeyError: 'x'") as failure:
        await worker_for(function).compute_score_batch(text_batch(["one", "x", "y"]))
    assert [outcome.status for outcome in failure.value.outcomes] == ["ok", "error", "error"]


@pytest.mark.parametrize("function", [look_up, look_up_async])
async def test_a_failed_sample_is_masked_or_gets_the_users_value(function: Any) -> None:
    masked = await worker_for(function, on_error="mask").compute_score(text_batch(["x"]))
    assert (masked["reward_score"], masked["reward_extra_info"]["reward_mask"]) == (0.0, 0)
    valued = await worker_for(function, on_error={"value": -1.0}).compute_score(text_batch(["x"]))
    assert (valued["reward_score"], valued["reward_extra_info"]["reward_mask"]) == (-1.0, 1)
    assert valued["reward_extra_info"]["reward_status"] == "error"


async def test_an_async_function_that_hangs_ends_at_its_deadline_and_is_cancelled() -> None:
    cancelled: list[str] = []

    async def hangs_on_b(solution_str: str) -> float:
        if solution_str == "b":
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(solution_str)
        return 1.0

    assert await values(worker_for(hangs_on_b, timeout_s=0.1), ["a", "b", "c"]) == [1.0, "timeout", 1.0]
    assert cancelled == ["b"]


async def test_an_async_function_that_cancels_itself_is_one_samples_error() -> None:
    async def cancels(solution_str: str) -> float:
        task = asyncio.current_task()
        if solution_str == "task" and task is not None:
            task.cancel()
            await asyncio.sleep(0)
        if solution_str == "raise":
            raise asyncio.CancelledError
        return 1.0

    worker = worker_for(cancels)
    outcomes = await worker.score_rows(text_batch(["a", "task", "raise", "b"]))
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "error", "ok"]
    assert {outcome.message for outcome in outcomes if outcome.failed} == {
        "CancelledError: the reward function was cancelled from within"
    }


async def test_an_async_function_that_calls_exit_is_one_samples_error() -> None:
    async def exits(solution_str: str) -> float:
        if solution_str == "b":
            raise SystemExit(1)
        return 1.0

    assert await values(worker_for(exits), ["a", "b", "c"]) == [1.0, "error", 1.0]


async def test_cancelling_a_batch_cancels_what_is_under_way() -> None:
    began, cancelled = asyncio.Event(), list[str]()

    async def waits(solution_str: str) -> float:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(solution_str)
        return 1.0

    run = asyncio.create_task(worker_for(waits).score_rows(text_batch(["a", "b"])))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert sorted(cancelled) == ["a", "b"]


async def test_token_ids_without_a_tokenizer_are_a_config_error_not_a_failed_sample() -> None:
    data = DataProto.from_dict(tensors={"responses": torch.ones(2, 3, dtype=torch.int64)})
    for function, manager in ((length, "naive"), (length_async, "naive"), (lambda solution_strs: [1.0], "batch")):
        worker = worker_for(function, on_error="mask", reward_manager={"name": manager})
        with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path"):
            await worker.score_rows(data)


# -- concurrency -----------------------------------------------------------------------------------------------------


async def test_as_many_samples_wait_at_a_time_as_max_concurrency_allows() -> None:
    waiting = most = 0
    full = asyncio.Event()

    async def waits(solution_str: str) -> float:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        if waiting == 5:
            full.set()
        await full.wait()
        waiting -= 1
        return 1.0

    assert await values(worker_for(waits, max_concurrency=5), ["x"] * 20) == [1.0] * 20
    assert most == 5


async def test_batches_that_are_scored_at_once_share_the_limit() -> None:
    waiting = most = 0

    async def waits(solution_str: str) -> float:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0)
        waiting -= 1
        return 1.0

    worker = worker_for(waits, max_concurrency=3)
    await asyncio.gather(*(worker.score_rows(text_batch(["x"] * 8)) for _ in range(4)))
    assert most == 3


# -- managers of users -----------------------------------------------------------------------------------------------


class ByHand(RewardManagerBase):
    """Does everything itself, as verl's managers do."""

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        item = data[-1]
        text = str(item.non_tensor_batch["solution_str"])
        if text == "bad":
            return {"score": 1.0}
        return {"reward_score": [1.0, 2.0] if text == "tokens" else 3.0, "reward_extra_info": {"rows": len(data)}}


class Ranked(RewardManagerBase):
    """Rewards a sample by its place in its group."""

    async def run_group(self, data: DataProto) -> list[dict[str, Any] | None]:
        texts = [str(text) for text in data.non_tensor_batch["solution_str"]]
        places = [sorted(texts).index(text) for text in texts]
        return [None if text == "?" else {"reward_score": place} for text, place in zip(texts, places, strict=True)]


class TooFew(RewardManagerBase):
    """Forgets a row."""

    async def run_batch(self, data: DataProto) -> list[dict[str, Any]]:
        return [{"reward_score": 1.0}] * (len(data) - 1)


def worker_with(manager: type, **reward_model: Any) -> RewardLoopWorker:
    return RewardLoopWorker(config_of(reward_model=reward_model), compute_score=length, manager_class=manager)


async def test_a_manager_with_its_own_run_single_gets_its_item() -> None:
    outcomes = await worker_with(ByHand).score_rows(text_batch(["a", "bad", "b"]))
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert "run_single must return" in outcomes[1].message
    trajectory = text_batch(["a", "b", "c"], trajectory_id=["t", "t", "t"])
    outcomes = await worker_with(ByHand).score_rows(trajectory)
    assert [outcome.reward and outcome.reward.extra for outcome in outcomes] == [{"rows": 3}] * 3


async def test_a_manager_may_score_a_group_and_leave_out_a_sample() -> None:
    data = text_batch(["b", "z", "a", "?", "y"], uid=[1, 2, 1, 1, 2])
    outcomes = await worker_with(Ranked).score_rows(data)
    assert [o.reward.value if o.reward else o.status for o in outcomes] == [2.0, 1.0, 1.0, "unscorable", 0.0]


async def test_a_manager_that_forgets_a_row_fails_the_whole_unit_and_says_so() -> None:
    outcomes = await worker_with(TooFew).score_rows(text_batch(["a", "b"]))
    assert {outcome.message for outcome in outcomes} == {
        "InvalidReward: run_batch must return 2 results, one per row; it returned [{'reward_score': 1.0}]"
    }


class NeedsMore(RewardManagerBase):
    """Its constructor is not the one that managers have."""

    def __init__(self, config: Any) -> None:
        raise AssertionError(config)


class NoManager:
    """Inherits from nothing."""


@pytest.mark.parametrize(("manager", "problem"), [(NeedsMore, "NeedsMore can't be built"), (NoManager, "must inherit")])
async def test_a_class_that_is_no_manager_is_a_config_error(manager: type, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await worker_with(manager).start()
