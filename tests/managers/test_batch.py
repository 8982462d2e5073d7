"""The manager whose function sees a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from reward_loop.errors import ConfigError, DataError, InvalidReward, Unscorable
from reward_loop.managers.batch import BatchRewardManager
from tests.fakes import config_of, text_batch, tiny_tokenizer, token_batch


def batch_manager(function: Callable[..., Any], address: str | None = None) -> BatchRewardManager:
    manager = BatchRewardManager(config_of(), tiny_tokenizer(), function, address)
    manager.check()
    return manager


def ok(score: float) -> dict[str, Any]:
    return {"reward_score": score, "reward_extra_info": {"acc": score}}


async def test_one_call_sees_all_rows() -> None:
    calls = []

    def compute_score(
        data_sources: list[str], solution_strs: list[str], ground_truths: list[str], extra_infos: list[dict[str, Any]]
    ) -> list[float]:
        calls.append((data_sources, solution_strs, ground_truths, [extra["row"] for extra in extra_infos]))
        return [1.0, 2.0]

    assert await batch_manager(compute_score).run_batch(text_batch(["a", "b"])) == [ok(1.0), ok(2.0)]
    assert calls == [(["fake", "fake"], ["a", "b"], ["truth 0", "truth 1"], [0, 1])]


async def test_an_asynchronous_function_is_awaited() -> None:
    async def compute_score(solution_strs: list[str]) -> list[int]:
        return [len(text) for text in solution_strs]

    assert await batch_manager(compute_score).run_batch(token_batch(["a", "bc"])) == [ok(1.0), ok(2.0)]


@pytest.mark.parametrize("rewards", [(1.0, 2.0), np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])])
async def test_the_rewards_may_be_any_sequence(rewards: object) -> None:
    assert await batch_manager(lambda solution_strs: rewards).run_batch(text_batch(["a", "b"])) == [ok(1.0), ok(2.0)]


async def test_each_row_may_be_whatever_a_function_of_one_sample_returns() -> None:
    manager = batch_manager(lambda solution_strs: [{"score": 1.0, "pred": "a"}, [0.5, 0.5], None, float("nan")])
    results = await manager.run_batch(token_batch(["a", "b", "c", "d"]))
    assert results[0] == {"reward_score": 1.0, "reward_extra_info": {"score": 1.0, "pred": "a"}}
    assert results[1] == {"reward_score": [0.5, 0.5], "reward_extra_info": {}}
    assert isinstance(results[2], Unscorable)
    assert isinstance(results[3], InvalidReward)


async def test_a_malformed_row_costs_itself_only() -> None:
    manager = batch_manager(lambda solution_strs: [len(text) for text in solution_strs])
    results = await manager.run_batch(text_batch(["a", "b", "ccc"], extra_info=[{}, "text", {}]))
    assert (results[0], results[2]) == (ok(1.0), ok(3.0))
    assert isinstance(results[1], DataError)


async def test_a_batch_without_a_good_row_is_not_scored() -> None:
    manager = batch_manager(lambda solution_strs: pytest.fail("nothing to score"))
    assert isinstance((await manager.run_batch(text_batch(["a"], extra_info=["text"])))[0], DataError)


@pytest.mark.parametrize(
    "wrong",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        1.0,
        None,
        "ab",
        {0: 0.5, 1: 0.7},
        {0.5, 0.7},
        torch.tensor(1.0),
        iter([1.0, 2.0]),
        SimpleNamespace(),
    ],
)
async def test_anything_but_one_reward_per_row_fails_the_batch(wrong: object) -> None:
    with pytest.raises(InvalidReward, match="expected a list of 2 rewards, one per sample; got"):
        await batch_manager(lambda solution_strs: wrong).run_batch(text_batch(["a", "b"]))


async def test_one_sample_is_a_batch_of_one() -> None:
    manager = batch_manager(lambda solution_strs: [len(text) for text in solution_strs])
    assert await manager.run_single(text_batch(["first", "last"])) == ok(4.0)
    with pytest.raises(DataError, match="extra_info must be a dict"):
        await manager.run_single(text_batch(["a"], extra_info=["text"]))


async def test_the_reward_model_is_offered_where_there_is_one() -> None:
    manager = batch_manager(lambda solution_strs, reward_router_address: [len(reward_router_address)], "host:1")
    assert await manager.run_batch(text_batch(["a"])) == [ok(6.0)]


def test_a_function_of_one_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs \['solution_str'\].*it may take .*'solution_strs'"):
        batch_manager(lambda solution_str: 1.0)


def test_a_column_that_the_function_needs_must_be_there() -> None:
    manager = batch_manager(lambda solution_strs, ground_truths: [])
    with pytest.raises(DataError, match="needs ground_truths, but the batch has no column 'reward_model'"):
        manager.reader(text_batch(["a"], reward_model=None))
