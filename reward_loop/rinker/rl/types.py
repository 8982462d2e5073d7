"""Environments, what happens in them, and groups of them, under the cookbook's names.

Invariant: an environment is used once; a reward that nobody could give is None, never 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from reward_loop.rinker.rendering.completers import StopCondition, TokensWithLogprobs
from reward_loop.rinker.types import ModelInput

Action: TypeAlias = list[int]
Observation: TypeAlias = ModelInput
Metrics: TypeAlias = Mapping[str, float]
Logs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an action led to. `next_observation` means nothing once the episode is done."""

    reward: float | None
    episode_done: bool
    next_observation: Observation
    next_stop_condition: StopCondition
    metrics: Metrics = field(default_factory=dict[str, float])
    """Numbers of this step, averaged over a batch."""
    logs: Logs = field(default_factory=dict[str, Any])
    """What a person may want to read of it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """An observation, the action that the policy took, and the environment's reward for it."""

    ob: Observation
    ac: TokensWithLogprobs
    reward: float | None
    episode_done: bool
    metrics: Metrics = field(default_factory=dict[str, float])
    logs: Logs = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode."""

    transitions: Sequence[Transition]
    final_ob: Observation

    @property
    def action_tokens(self) -> int:
        """How many tokens the policy drew."""
        return sum(len(transition.ac.tokens) for transition in self.transitions)


class Env(ABC):
    """What one agent acts in, with tokens; used for one episode."""

    @abstractmethod
    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """Begin the episode: the first prompt, and what ends an answer to it."""

    @abstractmethod
    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        """Take an action, of which `extra` knows the log-probabilities and why it ended."""

    def reward_columns(self) -> Mapping[str, Any]:
        """Return what the reward loop is told of this episode: data_source, reward_model, extra_info, raw_prompt."""
        return {}


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """The episodes of one group of environments, and the reward that each earned beyond its steps."""

    trajectories_G: Sequence[Trajectory]  # noqa: N815 - the axis, as in the cookbook
    final_rewards_G: Sequence[float | None]  # noqa: N815
    metrics_G: Sequence[Metrics]  # noqa: N815

    def get_total_rewards(self) -> list[float | None]:
        """Return each episode's reward: of its steps and of its end; None where either could not be given."""
        pairs = zip(self.trajectories_G, self.final_rewards_G, strict=True)
        return [_total([*(step.reward for step in trajectory.transitions), final]) for trajectory, final in pairs]


class EnvGroupBuilder(ABC):
    """Makes the environments of one group, whose rewards are compared with each other."""

    @abstractmethod
    async def make_envs(self) -> Sequence[Env]:
        """Return new environments; called again where a group must be played again."""

    async def compute_group_rewards(
        self, trajectory_group: Sequence[Trajectory], env_group: Sequence[Env]
    ) -> Sequence[tuple[float | None, Metrics]]:
        """Return the reward of each episode that depends on all of them; 0 by default. None: it can't be given."""
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        """Free what the group holds; called once its rewards are known, or could not be."""
        return

    def logging_tags(self) -> Sequence[str]:
        """Return the names under which the group's metrics are averaged besides "all"."""
        return ()


class RLDataset(ABC):
    """Batches of groups. The same index always gives the same groups: a resumed run asks again."""

    @abstractmethod
    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Return batch `index`, from 0."""

    @abstractmethod
    def __len__(self) -> int: ...


class RLDatasetBuilder(ABC):
    """Makes the data of a run."""

    @abstractmethod
    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Return what is trained on, and what is evaluated on."""


def _total(rewards: Sequence[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return math.fsum(known) if len(known) == len(rewards) else None
