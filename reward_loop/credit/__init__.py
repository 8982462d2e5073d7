"""From rewards and scores to a weight for every step: who scores, how scores and rewards combine, what they are centred by."""

from reward_loop.credit.algorithm import LossName, RLAlgorithm
from reward_loop.credit.assigner import CreditAssigner, GroupNormalizedReturn, ScoreLevel
from reward_loop.credit.combination import CombineMode
from reward_loop.credit.normalization import CENTERED, SCALERL, SEED_GRPO, TRL_GRPO, VERL_GRPO, Normalization, group_advantages
from reward_loop.credit.presets import (
    make_grpo_with_rm,
    make_reward_rl,
    make_rm_grpo_assigner,
    make_rm_scalerl_assigner,
    make_scalerl_with_rm,
)
from reward_loop.credit.reward_credit import RewardModelCreditAssigner, Stage
from reward_loop.credit.reward_scorer import RewardModelScorer, ScoringClient
from reward_loop.credit.rollout import GroupKey, Rollout, RolloutLike, RolloutStepKey, Step, StepLike

__all__ = [
    "CENTERED",
    "SCALERL",
    "SEED_GRPO",
    "TRL_GRPO",
    "VERL_GRPO",
    "CombineMode",
    "CreditAssigner",
    "GroupKey",
    "GroupNormalizedReturn",
    "LossName",
    "Normalization",
    "RLAlgorithm",
    "RewardModelCreditAssigner",
    "RewardModelScorer",
    "Rollout",
    "RolloutLike",
    "RolloutStepKey",
    "ScoreLevel",
    "ScoringClient",
    "Stage",
    "Step",
    "StepLike",
    "group_advantages",
    "make_grpo_with_rm",
    "make_reward_rl",
    "make_rm_grpo_assigner",
    "make_rm_scalerl_assigner",
    "make_scalerl_with_rm",
]
