"""The reward loop: workers that score samples side by side, and the manager that feeds them from a trainer."""

from reward_loop.loop.manager import RewardLoopManager, Scored
from reward_loop.loop.worker import RewardLoopWorker

__all__ = ["RewardLoopManager", "RewardLoopWorker", "Scored"]
