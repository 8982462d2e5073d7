"""Credit from the scores of a reward model, alone or with the environment's rewards.

Invariants: every step of every rollout gets a weight; a rollout (or step) that could not be scored changes no statistic and
weighs 0; a score that nobody wrote is an error, never a 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from reward_loop.credit.assigner import CreditAssigner, GroupNormalizedReturn, ScoreLevel
from reward_loop.credit.combination import Combination, CombineMode
from reward_loop.credit.normalization import CENTERED, Normalization
from reward_loop.credit.rollout import (
    GroupKey,
    RolloutLike,
    RolloutStepKey,
    check_rollouts,
    group_ids,
    number,
    with_rewards,
)
from reward_loop.errors import ConfigError, DataError

Stage: TypeAlias = Literal["reward", "advantage"]
"""Whether scores are combined with rewards, which are then centred, or with the weights of another assigner."""

_Scores: TypeAlias = Mapping[int, float]
"""The scores of a rollout by the place of the step, without those of steps that could not be scored."""


@dataclass(frozen=True, slots=True)
class RewardModelCreditAssigner:
    """Combines the scores that `RewardModelScorer` wrote to `meta[rm_score_key]` with another number (seed 001, C.4).

    At `stage` "reward" that number is the environment's reward, and what comes of it is normalized: by `inner_assigner`, which
    sees the combined rewards, else by `normalization` (default: the mean of the group is subtracted). At level "sequence" it is
    the sum of the rollout's rewards, and the score's part stands at the last step.

    At `stage` "advantage", the seed's literal order, the number is the weight that `inner_assigner` gave (1 without one), and
    nothing is normalized afterwards: multiplying a centred weight by a negative score flips it, and a bonus shifts the mean.

    A score of None is that of a sample which could not be scored: it is shown to no assigner and weighs 0. `group_size` is
    checked with all samples of a group. ConfigError for settings that contradict each other.
    """

    mode: CombineMode = "bonus"
    rm_coeff: float = 1.0
    alpha: float = 0.5
    rm_score_key: str = "rm_score"
    score_level: ScoreLevel = "sequence"
    inner_assigner: CreditAssigner | None = None
    stage: Stage = "reward"
    normalization: Normalization | None = None
    group_key: GroupKey = "group_id"
    group_size: int | None = None

    def __post_init__(self) -> None:
        _ = self._combination
        if self.score_level not in get_args(ScoreLevel) or self.stage not in get_args(Stage):
            raise ConfigError(
                f"score_level={self.score_level!r} is one of {get_args(ScoreLevel)}, stage={self.stage!r} of {get_args(Stage)}"
            )
        if self.normalization is not None and (self.inner_assigner is not None or self.stage == "advantage"):
            raise ConfigError(
                f"normalization is for stage='reward' without an inner_assigner (stage={self.stage!r}); "
                "give it to the inner assigner: GroupNormalizedReturn(normalization=…)"
            )

    def compute(self, rollouts: Sequence[RolloutLike]) -> dict[RolloutStepKey, float]:
        """Return a weight for every step of every rollout.

        DataError names the rollout that has no score or no group; InvalidReward one whose score or reward is no finite number.
        """
        check_rollouts(rollouts)
        if self.group_size is not None:
            group_ids(rollouts, self.group_key, self.group_size)
        scored = [(rollout, scores) for rollout in rollouts if (scores := self._scores(rollout))]
        given = self._centered(scored) if self.stage == "reward" else self._combined(scored)
        return {
            (rollout.id, step.index): given.get((rollout.id, step.index), 0.0) for rollout in rollouts for step in rollout.steps
        }

    @property
    def _combination(self) -> Combination:
        return Combination(self.mode, self.rm_coeff, self.alpha)

    def _centered(self, scored: Sequence[tuple[RolloutLike, _Scores]]) -> dict[RolloutStepKey, float]:
        """Combine rewards, then let them be normalized."""
        assigner = self.inner_assigner or GroupNormalizedReturn(
            normalization=self.normalization or CENTERED, group_key=self.group_key, level=self.score_level
        )
        weights = assigner.compute([with_rewards(rollout, self._rewards(rollout, scores)) for rollout, scores in scored])
        return {key: _weight(weights, key, rollout) for rollout, scores in scored for key in _keys(rollout, scores)}

    def _rewards(self, rollout: RolloutLike, scores: _Scores) -> dict[int, float]:
        """Return the combined reward of each scored step; for sequence scores their sum is what was combined."""
        rewards: dict[int, float] = {}
        last = max(scores)
        for place, score in scores.items():
            factor, addend = self._combination.terms(score)
            step = rollout.steps[place]
            reward = factor and factor * number(step.reward, f"the reward of step {step.index}", rollout)
            addend = addend if self.score_level == "step" or place == last else 0.0
            rewards[place] = number(reward + addend, f"the combined reward of step {step.index}", rollout)
        return rewards

    def _combined(self, scored: Sequence[tuple[RolloutLike, _Scores]]) -> dict[RolloutStepKey, float]:
        """Combine the weights that another assigner gave."""
        inner = None if self.inner_assigner is None else self.inner_assigner.compute([rollout for rollout, _ in scored])
        result: dict[RolloutStepKey, float] = {}
        for rollout, scores in scored:
            for key, score in zip(_keys(rollout, scores), scores.values(), strict=True):
                base = 1.0 if inner is None else _weight(inner, key, rollout)
                result[key] = number(self._combination(base, score), f"the weight of step {key[1]}", rollout)
        return result

    def _scores(self, rollout: RolloutLike) -> _Scores:
        if self.rm_score_key not in rollout.meta:
            raise DataError(
                f"meta has no {self.rm_score_key!r} (it has {list(rollout.meta)!r:.200}); let RewardModelScorer(client, "
                f"score_key={self.rm_score_key!r}) score the rollouts first, or set it to None to leave one out",
                sample=str(rollout.id),
            )
        value = rollout.meta[self.rm_score_key]
        if value is None:
            return {}
        if self.score_level == "sequence":
            score = self._number(rollout, value)
            return dict.fromkeys(range(len(rollout.steps)), score)
        values = getattr(value, "tolist", lambda: value)()
        if not isinstance(values, list | tuple) or len(values) != len(rollout.steps):
            raise DataError(
                f"{self.rm_score_key}={value!r:.100} must be a list of one score for each of {len(rollout.steps)} steps; "
                "let a RewardModelScorer(score_level='step') write it, or set score_level='sequence'",
                sample=str(rollout.id),
            )
        return {place: self._number(rollout, score) for place, score in enumerate(values) if score is not None}

    def _number(self, rollout: RolloutLike, value: object) -> float:
        if isinstance(value, list | tuple):
            raise DataError(
                f"{self.rm_score_key} holds {value!r:.100} where one number belongs; set score_level='step', "
                "or reduce the labels with RewardModelScorer(to_number=…)",
                sample=str(rollout.id),
            )
        return number(value, self.rm_score_key, rollout)


def _keys(rollout: RolloutLike, scores: _Scores) -> list[RolloutStepKey]:
    return [(rollout.id, rollout.steps[place].index) for place in scores]


def _weight(weights: Mapping[RolloutStepKey, float], key: RolloutStepKey, rollout: RolloutLike) -> float:
    if key not in weights:
        raise DataError(
            f"inner_assigner gave step {key[1]} no weight; compute() must return one for every step", sample=str(rollout.id)
        )
    return number(weights[key], f"the inner assigner's weight of step {key[1]}", rollout)
