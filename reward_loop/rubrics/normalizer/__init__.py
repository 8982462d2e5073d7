"""Rewards of different environments made comparable: what was seen of each, and four ways to normalise by it."""

from reward_loop.rubrics.normalizer.method import Method
from reward_loop.rubrics.normalizer.moments import Moments
from reward_loop.rubrics.normalizer.reward_normalizer import MethodName, RewardNormalizer

__all__ = ["Method", "MethodName", "Moments", "RewardNormalizer"]
