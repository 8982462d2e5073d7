"""What a deployment of reward models is told, from whatever the trainer holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.config import RewardLoopConfig, RewardModelConfig
from reward_loop.config_loading import load_config


def whole_config(config: Any) -> RewardLoopConfig:
    """Return the whole configuration, from one or from its section on reward models under either of verl's spellings."""
    if isinstance(config, RewardLoopConfig):
        return config
    if isinstance(config, RewardModelConfig):
        return RewardLoopConfig(reward_model=config)
    if isinstance(config, Mapping):  # a DictConfig is one too
        names = set(config)
        if "model_path" in names:
            return load_config({"reward": {"reward_model": config}})
        if names & {"rollout", "model", "models"} and not names & {"reward_model", "reward"}:
            return load_config({"reward_model": config})
    return load_config(config)
