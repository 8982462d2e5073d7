"""What is taken for a rollout, how groups are told, and that keys are unique."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from reward_loop.credit import Rollout, RolloutLike, Step
from reward_loop.credit.rollout import check_rollouts, group_ids, with_rewards
from reward_loop.errors import DataError
from tests.credit.rollouts import rollout


@dataclass
class TrainersStep:
    """A trainer's own step, which has more than ours."""

    index: int
    prev_obs: str
    action: str
    reward: float
    truncated: bool = False


@dataclass
class TrainersRollout:
    """A trainer's own rollout."""

    id: str
    steps: list[TrainersStep]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


class PlainRollout:
    """One that is no dataclass, with steps that are none."""

    def __init__(self, steps: list[Any]) -> None:
        self.id, self.steps, self.meta = "plain", steps, dict[str, Any]()


class PlainStep:
    def __init__(self) -> None:
        self.index, self.prev_obs, self.action, self.reward = 0, "see", "do", 1.0


def test_the_return_is_the_sum_of_the_rewards() -> None:
    assert rollout("a", [0.1] * 10).total_reward == 1.0


def test_a_request_names_its_group() -> None:
    ludic = Rollout("a", [], {"request_meta": {"group_id": 7}})
    assert group_ids([ludic, rollout("b", group=7)]) == [7, 7]


def test_version_zero_and_group_zero_are_set() -> None:
    assert group_ids([rollout("a", group=0)]) == [0]


def test_the_key_or_a_function_says_where_the_group_stands() -> None:
    other = Rollout("a-1", [], {"prompt": "p"})
    assert group_ids([other], "prompt") == ["p"]
    assert group_ids([other], lambda rollout: rollout.id.split("-")[0]) == ["a"]


@pytest.mark.parametrize("meta", [{}, {"group_id": None}, {"request_meta": None}, {"request_meta": {}}])
def test_a_rollout_without_a_group_is_an_error_that_names_it(meta: dict[str, Any]) -> None:
    twins = [rollout("a"), Rollout("b", rollout("a").steps, meta)]  # equal prompts make no group
    with pytest.raises(DataError, match=r"sample b: no group is named by meta\['group_id'\]; set meta\['request_meta'\]"):
        group_ids(twins)


def test_two_names_for_one_group_contradict_each_other() -> None:
    with pytest.raises(DataError, match="sample a: meta names two groups by 'group_id': 1 and 2"):
        group_ids([Rollout("a", [], {"request_meta": {"group_id": 1}, "group_id": 2})])


def test_a_group_is_named_by_something_that_can_be_a_key() -> None:
    with pytest.raises(DataError, match="a group's id is text or a number"):
        group_ids([rollout("a", group=["x"])])


def test_an_id_that_occurs_twice_would_lose_a_rollout() -> None:
    with pytest.raises(DataError, match="sample a: 2 rollouts have this id"):
        check_rollouts([rollout("a"), rollout("b"), rollout("a")])


def test_an_index_that_occurs_twice_would_lose_a_step() -> None:
    with pytest.raises(DataError, match="sample a: 2 steps have the index 1"):
        check_rollouts([Rollout("a", [Step(1, "", ""), Step(1, "", "")])])


def test_changed_rewards_are_those_of_a_copy_of_the_same_kind() -> None:
    own = TrainersRollout("a", [TrainersStep(0, "", "", 1.0, truncated=True), TrainersStep(1, "", "", 2.0)], {"k": 1})
    changed = with_rewards(own, {0: 5.0})
    assert changed == TrainersRollout("a", [TrainersStep(0, "", "", 5.0, truncated=True)], {"k": 1})
    assert own.steps[0].reward == 1.0
    assert with_rewards(rollout("a", [1.0]), {0: 3.0}) == rollout("a", [3.0])


def test_what_is_no_dataclass_is_copied_too() -> None:
    own = PlainRollout([PlainStep()])
    changed: RolloutLike = with_rewards(own, {0: 5.0})
    assert isinstance(changed, PlainRollout)
    assert (changed.steps[0].reward, own.steps[0].reward) == (5.0, 1.0)
