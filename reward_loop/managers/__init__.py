"""Reward managers: what they share is in `base`, how they are found in `registry`; each built-in has a file of its own."""

from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import get_reward_manager_cls, register

__all__ = ["ManagerKwargs", "RewardManagerBase", "get_reward_manager_cls", "register"]
