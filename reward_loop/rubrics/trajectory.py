"""Rubrics that judge a whole episode, and give its steps their share of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.rubrics.evaluation import Steps, evaluated, settled
from reward_loop.rubrics.observation import is_done
from reward_loop.rubrics.rubric import Rubric

Trajectory = list[tuple[Any, Any]]


class TrajectoryRubric(Rubric):
    """Collect (action, observation) pairs, and score them once an observation is done; until then give `intermediate_reward`.

    One object follows one episode at a time: `reset` before the next.
    """

    def __init__(self, intermediate_reward: float = 0.0) -> None:
        self.intermediate_reward = intermediate_reward
        self._trajectory: Trajectory = []

    def score_trajectory(self, trajectory: Trajectory) -> Any:
        """Return the score of a complete episode, or an awaitable of it."""
        raise NotImplementedError(f"{type(self).__name__} needs score_trajectory(trajectory)")

    def compute_step_rewards(self) -> Any:
        """Return a reward for each step so far (in a list; an awaitable of it where `score_trajectory` is async)."""
        raise NotImplementedError(f"{type(self).__name__} needs compute_step_rewards()")

    def forward(self, action: Any, observation: Any) -> Any:
        """Take a step in; return the episode's score if it was the last."""
        self._trajectory.append((action, observation))
        return self.score_trajectory(self.trajectory) if is_done(observation) else self.intermediate_reward

    @property
    def trajectory(self) -> Trajectory:
        """The steps so far, in a list of the caller's own."""
        return list(self._trajectory)

    def reset(self) -> None:
        """Forget the steps."""
        self._trajectory = []
        super().reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the settings; the steps are not part of a checkpoint."""
        return {"intermediate_reward": self.intermediate_reward, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.intermediate_reward = state.get("intermediate_reward", self.intermediate_reward)
        super().load_state_dict(state)


class ExponentialDiscountingTrajectoryRubric(TrajectoryRubric):
    """Step t of T gets gamma^(T-1-t) times the episode's score (OpenEnv RFC 004)."""

    def __init__(self, gamma: float = 0.99, intermediate_reward: float = 0.0) -> None:
        super().__init__(intermediate_reward)
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma={gamma} must be between 0 and 1")
        self.gamma = gamma

    def compute_step_rewards(self) -> Any:
        """Return the discounted rewards; none before the first step."""
        if not self._trajectory:
            return []
        return evaluated(self._shares())

    def _shares(self) -> Steps[list[float]]:
        score = yield from settled(self.score_trajectory(self.trajectory))
        steps = len(self._trajectory)
        return [score * self.gamma ** (steps - 1 - step) for step in range(steps)]

    def state_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return {"gamma": self.gamma, **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.gamma = state.get("gamma", self.gamma)
        super().load_state_dict(state)
