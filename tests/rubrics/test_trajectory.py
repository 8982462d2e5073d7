"""Rubrics that judge whole episodes."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop.rubrics.observation import Observation
from reward_loop.rubrics.trajectory import ExponentialDiscountingTrajectoryRubric, TrajectoryRubric


class Outcome(ExponentialDiscountingTrajectoryRubric):
    """Gives the outcome that the last observation tells."""

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        return trajectory[-1][1].metadata["outcome"]


class LaterOutcome(Outcome):
    """`Outcome`, awaited."""

    async def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
        return trajectory[-1][1].metadata["outcome"]


def end(outcome: float = 1.0) -> Observation:
    return Observation(done=True, metadata={"outcome": outcome})


def played(rubric: Outcome, steps: int, outcome: float = 1.0) -> Outcome:
    for _ in range(steps - 1):
        rubric("move", Observation())
    rubric("move", end(outcome))
    return rubric


def test_steps_before_the_last_get_the_intermediate_reward() -> None:
    rubric = Outcome(intermediate_reward=0.1)
    assert rubric("e4", Observation()) == 0.1
    assert rubric("e5", end(0.7)) == 0.7
    assert rubric.last_score == 0.7


async def test_a_trajectory_may_be_scored_by_awaiting() -> None:
    rubric = LaterOutcome(gamma=0.5)
    assert rubric("e4", Observation()) == 0.0
    assert await rubric("e5", end()) == 1.0
    assert await rubric.compute_step_rewards() == [0.5, 1.0]


def test_the_trajectory_is_a_copy() -> None:
    rubric = played(Outcome(), 2)
    rubric.trajectory.clear()
    assert len(rubric.trajectory) == 2


def test_scoring_a_trajectory_does_not_change_it() -> None:
    class Destructive(Outcome):
        def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> Any:
            return trajectory.pop()[1].metadata["outcome"]

    assert len(played(Destructive(), 3).trajectory) == 3


def test_reset_forgets_the_steps() -> None:
    rubric = played(Outcome(), 3)
    rubric.reset()
    assert rubric.trajectory == []
    assert played(rubric, 2, 0.5).compute_step_rewards() == pytest.approx([0.99 * 0.5, 0.5])


@pytest.mark.parametrize(
    ("gamma", "shares"),
    [(1.0, [1.0, 1.0, 1.0]), (0.0, [0.0, 0.0, 1.0]), (0.5, [0.25, 0.5, 1.0]), (0.99, [0.9801, 0.99, 1.0])],
)
def test_step_t_of_n_gets_gamma_to_the_n_minus_1_minus_t(gamma: float, shares: list[float]) -> None:
    assert played(Outcome(gamma), 3).compute_step_rewards() == pytest.approx(shares)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, float("nan")])
def test_gamma_must_be_between_0_and_1(gamma: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Outcome(gamma)


def test_there_are_no_rewards_before_the_first_step() -> None:
    assert Outcome().compute_step_rewards() == []


def test_a_checkpoint_holds_the_settings_and_no_steps() -> None:
    rubric = Outcome(gamma=0.5, intermediate_reward=0.1)
    rubric("e4", Observation())
    assert rubric.state_dict() == {"gamma": 0.5, "intermediate_reward": 0.1}
    other = Outcome()
    other.load_state_dict(rubric.state_dict())
    assert (other.gamma, other.intermediate_reward, other.trajectory) == (0.5, 0.1, [])


def test_what_a_subclass_must_write_is_said() -> None:
    with pytest.raises(NotImplementedError, match="score_trajectory"):
        TrajectoryRubric()("e4", Observation(done=True))
    with pytest.raises(NotImplementedError, match="compute_step_rewards"):
        TrajectoryRubric().compute_step_rewards()
