"""An algorithm as data: whose credit, which loss. A trainer (rinker, or another) carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from reward_loop.credit.assigner import CreditAssigner
from reward_loop.credit.reward_credit import RewardModelCreditAssigner
from reward_loop.credit.reward_scorer import RewardModelScorer
from reward_loop.credit.rollout import RolloutLike, RolloutStepKey
from reward_loop.errors import ConfigError

LossName: TypeAlias = Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"]
"""Tinker's names; all are sums over tokens."""


@dataclass(frozen=True, slots=True)
class RLAlgorithm:
    """Credit assignment and a loss with its settings (e.g. `clip_low_threshold`), and what scores the rollouts before, if any.

    ConfigError for a loss of another name, and for a scorer that writes what the assigner does not read.
    """

    name: str
    credit_assigner: CreditAssigner
    loss: LossName
    loss_config: Mapping[str, float] = field(default_factory=dict[str, float])
    reward_scorer: RewardModelScorer | None = None

    def __post_init__(self) -> None:
        if self.loss not in get_args(LossName):
            raise ConfigError(f"loss={self.loss!r} is none of {', '.join(get_args(LossName))}")
        reader, scorer = self.credit_assigner, self.reward_scorer
        if isinstance(reader, RewardModelCreditAssigner) and scorer is not None:
            read, written = (reader.rm_score_key, reader.score_level), (scorer.score_key, scorer.score_level)
            if read != written:
                raise ConfigError(
                    f"the credit assigner reads {read}, the scorer writes {written}; give both the same key and level"
                )

    async def credit(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
        """Score the rollouts, if this algorithm has a scorer, and return a weight for every step of each."""
        if self.reward_scorer is not None:
            await self.reward_scorer.score(rollouts)
        return self.credit_assigner.compute(rollouts)
