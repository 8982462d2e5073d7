"""Credit assigners: from the rollouts of a batch to one weight for every step of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

from reward_loop.credit.normalization import CENTERED, Normalization
from reward_loop.credit.rollout import GroupKey, RolloutLike, RolloutStepKey, check_rollouts, group_ids, number
from reward_loop.errors import ConfigError

ScoreLevel: TypeAlias = Literal["sequence", "step"]
"""One number for a rollout, or one for each of its steps."""


class CreditAssigner(Protocol):
    """Gives every step of every rollout the weight that its actions have in the loss."""

    def compute(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
        """Return a weight for every step of every rollout."""
        ...


@dataclass(frozen=True, slots=True)
class GroupNormalizedReturn:
    """The environment's rewards as advantages.

    At level "sequence" the sum of each rollout's rewards is normalized and given to all of its steps, at level "step" each step's
    own. A group is named in the rollouts' meta (`group_key`); DataError where it is not, or has not `group_size` rollouts.
    """

    group_size: int | None = None
    normalization: Normalization = CENTERED
    group_key: GroupKey = "group_id"
    level: ScoreLevel = "sequence"

    def __post_init__(self) -> None:
        if self.level not in get_args(ScoreLevel):
            raise ConfigError(f"level={self.level!r} is one of {get_args(ScoreLevel)}")

    def compute(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
        """Return the advantage of every step of every rollout; a rollout without steps does not count."""
        check_rollouts(rollouts)
        needs_groups = self.normalization.center == "group" or self.group_size is not None
        groups = group_ids(rollouts, self.group_key, self.group_size) if needs_groups else [None] * len(rollouts)
        advantages = self.normalization.advantages([self._rewards(rollout) for rollout in rollouts], groups)
        return {
            (rollout.id, step.index): values[place if self.level == "step" else 0]
            for rollout, values in zip(rollouts, advantages, strict=True)
            for place, step in enumerate(rollout.steps)
        }

    def _rewards(self, rollout: RolloutLike) -> list[float]:
        rewards = [number(step.reward, f"the reward of step {step.index}", rollout) for step in rollout.steps]
        return rewards if self.level == "step" or not rewards else [math.fsum(rewards)]
