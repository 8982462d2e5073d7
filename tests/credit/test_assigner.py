"""Credit from the environment's rewards alone."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.credit import VERL_GRPO, GroupNormalizedReturn, Normalization
from reward_loop.errors import ConfigError, DataError, InvalidReward
from tests.credit.rollouts import rollout


def test_the_return_of_a_rollout_is_compared_and_given_to_all_of_its_steps() -> None:
    weights = GroupNormalizedReturn().compute([rollout("a", [0.5, 0.5, 1.0]), rollout("b", [1.0])])
    assert weights == {("a", 0): 0.5, ("a", 1): 0.5, ("a", 2): 0.5, ("b", 0): -0.5}


def test_the_steps_own_rewards_can_be_compared() -> None:
    # The rollouts' averages are 2 and 0, so 1 is subtracted everywhere.
    weights = GroupNormalizedReturn(level="step").compute([rollout("a", [1.0, 3.0]), rollout("b", [0.0])])
    assert weights == {("a", 0): 0.0, ("a", 1): 2.0, ("b", 0): -1.0}


def test_groups_are_told_by_their_id() -> None:
    rollouts = [rollout("a", [1.0], "g"), rollout("b", [0.0], "g"), rollout("c", [7.0], "h"), rollout("d", [5.0], "h")]
    assert list(GroupNormalizedReturn().compute(rollouts).values()) == [0.5, -0.5, 1.0, -1.0]


def test_a_rollout_without_steps_does_not_count() -> None:
    weights = GroupNormalizedReturn().compute([rollout("a", [1.0]), rollout("empty", []), rollout("b", [0.0])])
    assert weights == {("a", 0): 0.5, ("b", 0): -0.5}


def test_a_group_that_is_not_whole_is_an_error_where_its_size_is_known() -> None:
    rollouts = [rollout("a"), rollout("b")]
    assert GroupNormalizedReturn(2, VERL_GRPO).compute(rollouts) == {("a", 0): 0.0, ("b", 0): 0.0}
    with pytest.raises(DataError, match="group 'g' has 2 samples, not group_size=3"):
        GroupNormalizedReturn(3).compute(rollouts)


def test_without_a_baseline_no_group_is_asked_for() -> None:
    rewards = GroupNormalizedReturn(normalization=Normalization("none")).compute([rollout("a", [2.0], None)])
    assert rewards == {("a", 0): 2.0}


@pytest.mark.parametrize("reward", [float("nan"), None, "1"])
def test_a_reward_that_is_no_number_names_its_rollout(reward: Any) -> None:
    with pytest.raises(InvalidReward, match="sample a: the reward of step 1 must be a finite number; it is"):
        GroupNormalizedReturn().compute([rollout("a", [0.0, reward])])


def test_an_unknown_level_is_refused() -> None:
    wrong: Any = "token"
    with pytest.raises(ConfigError, match="level='token'"):
        GroupNormalizedReturn(level=wrong)
