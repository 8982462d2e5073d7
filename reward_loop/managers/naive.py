"""The manager that gives out what the reward function says."""

from __future__ import annotations

from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register


@register("naive")
class NaiveRewardManager(RewardManagerBase):
    """Score each sample by the reward function alone (seed 002)."""

    kwargs_model = ManagerKwargs
