"""Rewards, their components, weights and costs, step by step, in the experiment tracker of your choice."""

from reward_loop.rubrics.logger.backend import Backend, BackendName
from reward_loop.rubrics.logger.memory_backend import MemoryBackend
from reward_loop.rubrics.logger.record import ConfigUpdate, Record
from reward_loop.rubrics.logger.reward_logger import RewardLogger

__all__ = ["Backend", "BackendName", "ConfigUpdate", "MemoryBackend", "Record", "RewardLogger"]
