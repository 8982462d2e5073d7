"""Credit assigners and algorithms under the names by which they are known (seed 001, C.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack

from reward_loop.credit.algorithm import LossName, RLAlgorithm
from reward_loop.credit.assigner import GroupNormalizedReturn, ScoreLevel
from reward_loop.credit.combination import CombineMode
from reward_loop.credit.normalization import CENTERED, SCALERL, Normalization
from reward_loop.credit.reward_credit import RewardModelCreditAssigner, Stage
from reward_loop.credit.reward_scorer import RewardModelScorer
from reward_loop.credit.rollout import GroupKey
from reward_loop.errors import ConfigError

PPO_CLIP: Mapping[str, float] = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
CISPO_CLIP: Mapping[str, float] = {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}


class Combining(TypedDict, total=False):
    """The settings of RewardModelCreditAssigner that presets pass on, with its defaults."""

    rm_coeff: float
    alpha: float
    rm_score_key: str
    score_level: ScoreLevel
    stage: Stage
    group_key: GroupKey


def make_rm_grpo_assigner(
    group_size: int, mode: CombineMode = "bonus", *, normalization: Normalization = CENTERED, **combining: Unpack[Combining]
) -> RewardModelCreditAssigner:
    """Return GRPO's credit: the mean of the group, of exactly `group_size` rollouts, is subtracted, and no more by default.

    At stage "reward" from the combined rewards, at stage "advantage" from the environment's, to which scores are added then.
    """
    if group_size < 1:
        raise ConfigError(f"group_size={group_size} must be at least 1")
    if combining.get("stage", "reward") == "reward":
        return RewardModelCreditAssigner(mode, group_size=group_size, normalization=normalization, **combining)
    # The group's size is checked by the outer assigner, which sees also the rollouts that have no score.
    inner = GroupNormalizedReturn(
        normalization=normalization,
        group_key=combining.get("group_key", "group_id"),
        level=combining.get("score_level", "sequence"),
    )
    return RewardModelCreditAssigner(mode, group_size=group_size, inner_assigner=inner, **combining)


def make_rm_scalerl_assigner(
    group_size: int, mode: CombineMode = "bonus", *, normalization: Normalization = SCALERL, **combining: Unpack[Combining]
) -> RewardModelCreditAssigner:
    """Return ScaleRL's credit (arXiv:2510.13786): minus the group's mean, over the std of the batch's advantages."""
    return make_rm_grpo_assigner(group_size, mode, normalization=normalization, **combining)


def make_grpo_with_rm(
    group_size: int,
    mode: CombineMode = "bonus",
    *,
    scorer: RewardModelScorer | None = None,
    loss: LossName = "ppo",
    loss_config: Mapping[str, float] = PPO_CLIP,
    normalization: Normalization = CENTERED,
    name: str = "grpo_rm",
    **combining: Unpack[Combining],
) -> RLAlgorithm:
    """Return GRPO on rewards that a reward model has a part in, with PPO's clipped loss."""
    assigner = make_rm_grpo_assigner(group_size, mode, normalization=normalization, **combining)
    return RLAlgorithm(name, assigner, loss, loss_config, scorer)


def make_scalerl_with_rm(
    group_size: int,
    mode: CombineMode = "bonus",
    *,
    scorer: RewardModelScorer | None = None,
    loss: LossName = "cispo",
    loss_config: Mapping[str, float] = CISPO_CLIP,
    normalization: Normalization = SCALERL,
    name: str = "scalerl_rm",
    **combining: Unpack[Combining],
) -> RLAlgorithm:
    """Return ScaleRL on rewards that a reward model has a part in, with its CISPO loss."""
    assigner = make_rm_scalerl_assigner(group_size, mode, normalization=normalization, **combining)
    return RLAlgorithm(name, assigner, loss, loss_config, scorer)


def make_reward_rl(
    mode: CombineMode = "replace",
    *,
    scorer: RewardModelScorer | None = None,
    loss: LossName = "importance_sampling",
    loss_config: Mapping[str, float] | None = None,
    normalization: Normalization | None = None,
    name: str = "reward_rl",
    **combining: Unpack[Combining],
) -> RLAlgorithm:
    """Return REINFORCE on a reward model's scores as they are: no groups, and no baseline unless `normalization` asks for one.

    On samples of the policy itself, the gradient of importance sampling is that of REINFORCE.
    """
    if normalization is None and combining.get("stage", "reward") == "reward":
        normalization = Normalization(center="none")
    assigner = RewardModelCreditAssigner(mode, normalization=normalization, **combining)
    return RLAlgorithm(name, assigner, loss, loss_config or {}, scorer)
