"""Rewards for RL post-training: per sample, asynchronous, never a silent zero. See README.md.

Importing this costs next to nothing: each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward_loop.config import RewardLoopConfig as RewardLoopConfig
    from reward_loop.config_loading import load_config as load_config
    from reward_loop.data import DataProto as DataProto
    from reward_loop.functions.isolated import isolated as isolated
    from reward_loop.functions.rules import default_compute_score as default_compute_score
    from reward_loop.functions.rules import register_rule as register_rule
    from reward_loop.loop import RewardLoopManager as RewardLoopManager
    from reward_loop.loop import RewardLoopWorker as RewardLoopWorker
    from reward_loop.managers import RewardManagerBase as RewardManagerBase
    from reward_loop.managers import get_reward_manager_cls as get_reward_manager_cls
    from reward_loop.managers import register as register
    from reward_loop.scoring.chat import chat_complete as chat_complete
    from reward_loop.scoring.vllm_client import VLLMRewardClient as VLLMRewardClient
    from reward_loop.serving.manager import RewardModelManager as RewardModelManager
    from reward_loop.sync.create import create_reward_publisher as create_reward_publisher
    from reward_loop.sync.publisher import RewardModelPublisher as RewardModelPublisher
    from reward_loop.sync.training_mode import RewardModelTrainingMode as RewardModelTrainingMode

__version__ = "0.1.0"

_MODULES = {
    "DataProto": "reward_loop.data",
    "RewardLoopConfig": "reward_loop.config",
    "RewardLoopManager": "reward_loop.loop",
    "RewardLoopWorker": "reward_loop.loop",
    "RewardManagerBase": "reward_loop.managers",
    "RewardModelManager": "reward_loop.serving.manager",
    "RewardModelPublisher": "reward_loop.sync.publisher",
    "RewardModelTrainingMode": "reward_loop.sync.training_mode",
    "VLLMRewardClient": "reward_loop.scoring.vllm_client",
    "chat_complete": "reward_loop.scoring.chat",
    "create_reward_publisher": "reward_loop.sync.create",
    "default_compute_score": "reward_loop.functions.rules",
    "get_reward_manager_cls": "reward_loop.managers",
    "isolated": "reward_loop.functions.isolated",
    "load_config": "reward_loop.config_loading",
    "register": "reward_loop.managers",
    "register_rule": "reward_loop.functions.rules",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
