"""Rewards from the reward loop: the environment's own numbers by another way, and failures that are never 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reward_loop.outcome import BatchFailed
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.reward_loop_rewards import RewardLoopRewards
from reward_loop.rinker.rl.rewards import EpisodeReward
from reward_loop.rinker.rl.types import Trajectory, Transition
from reward_loop.rinker.types import ModelInput
from tests.fakes import tiny_tokenizer
from tests.rinker.rl.copy_task import CopyEnv
from tests.rinker.rl.runs import GROUPS, SIZE, every_group_once, run, trained_groups

JUDGES = str(Path(__file__).with_name("judges.py"))


def reward_loop(function: str, **reward_model: Any) -> dict[str, Any]:
    return {"custom_reward_function": {"path": JUDGES, "name": function}, "reward_model": reward_model}


def episode(*answers: Sequence[int]) -> Trajectory:
    steps = [
        Transition(ModelInput.from_ints([10, 1, 2, 3, 11]), TokensWithLogprobs(list(said), [-1.0] * len(said)), 0.0, True)
        for said in answers
    ]
    return Trajectory(steps, ModelInput.empty())


async def scored(config: dict[str, Any], *answers: Sequence[int], **settings: Any) -> list[EpisodeReward]:
    async with RewardLoopRewards.open(config, **settings) as rewards:
        if rewards.whole_groups:
            return await rewards.score("0-0", [(CopyEnv([1, 2, 3]), episode(said)) for said in answers])
        return [(await rewards.score("0-0", [(CopyEnv([1, 2, 3]), episode(said))]))[0] for said in answers]


@pytest.mark.parametrize("use_reward_loop", [True, False])
async def test_an_episode_earns_what_the_reward_function_says_whichever_path_is_taken(use_reward_loop: bool) -> None:
    found = await scored(reward_loop("copied"), [1, 2, 3], [1, 0, 0], use_reward_loop=use_reward_loop)
    assert [one.value for one in found] == [1.0, pytest.approx(1 / 3)]
    assert [one.metrics["first"] for one in found] == [1.0, 1.0]
    assert all(one.replaces and not one.failed for one in found)


async def test_it_can_be_added_to_the_environments() -> None:
    [one] = await scored(reward_loop("copied"), [1, 2, 3], combine="add")
    assert not one.replaces


async def test_under_mask_a_failure_and_what_can_not_be_judged_have_no_reward() -> None:
    found = await scored(reward_loop("picky", on_error="mask"), [2], [3], [4])
    assert [(one.value, one.failed) for one in found] == [(1.0, False), (None, True), (None, False)]


async def test_a_failure_has_a_value_where_the_configuration_names_one() -> None:
    found = await scored(reward_loop("picky", on_error={"value": -1.0}), [2], [3], [4])
    assert [(one.value, one.failed) for one in found] == [(1.0, False), (-1.0, True), (None, False)]


async def test_under_raise_a_failure_ends_the_run() -> None:
    with pytest.raises(BatchFailed, match="ValueError: what is this"):
        await scored(reward_loop("picky"), [3])


async def test_a_reward_that_hangs_is_a_failure_after_its_time() -> None:
    found = await scored(reward_loop("hanging", on_error="mask", timeout_s=0.05), [1], [2])
    assert [(one.value, one.failed) for one in found] == [(None, True), (0.5, False)]


async def test_a_manager_of_groups_gets_them_whole() -> None:
    config = reward_loop("batch_copied", reward_manager="batch")
    found = await scored(config, [1], [2], [], tokenizer=tiny_tokenizer())
    assert [one.value for one in found] == [3.0, 3.0, 3.0]


async def test_the_turns_of_an_episode_are_judged_together() -> None:
    async with RewardLoopRewards.open(reward_loop("copied")) as rewards:
        [one] = await rewards.score("0-0", [(CopyEnv([1, 2, 3]), episode([1], [2, 3]))])
    assert one.value == 1.0


async def test_what_is_judged_is_text_or_without_a_tokenizer_token_ids() -> None:
    ids = tiny_tokenizer()("six times", add_special_tokens=False)["input_ids"]
    [one] = await scored(reward_loop("words"), ids, tokenizer=tiny_tokenizer())
    assert one.value == 2.0
    [one] = await scored(reward_loop("words"), [1, 2, 3])
    assert one.value == 3.0


@pytest.mark.parametrize("use_reward_loop", [True, False])
async def test_a_run_with_the_reward_loop_is_the_one_with_the_environments_rewards(
    tmp_path: Path, copy_model: str, use_reward_loop: bool
) -> None:
    own = await run(tmp_path / "own", copy_model, steps=2)
    rewards = {"reward_loop": reward_loop("copied"), "use_reward_loop": use_reward_loop}
    looped = await run(tmp_path / "looped", copy_model, steps=2, rewards=rewards)
    for name in ("reward/total", "optim/loss", "optim/entropy"):
        assert looped.series(name) == pytest.approx(own.series(name), abs=1e-6)
    assert "env/all/first" in looped.metrics[0]


async def test_failed_and_hanging_rewards_cost_no_step_and_count_for_nothing(tmp_path: Path, copy_model: str) -> None:
    rewards = {"reward_loop": reward_loop("picky", on_error="mask")}
    watching = await run(tmp_path, copy_model, rewards=rewards)
    assert trained_groups(tmp_path) == every_group_once()
    unscored, failed = sum(watching.series("env/all/unscored")), sum(watching.series("rollouts/failed_rewards"))
    assert 0 < failed < unscored < GROUPS * SIZE * 4
    assert {metrics["reward/total"] for metrics in watching.metrics if "reward/total" in metrics} == {1.0}
