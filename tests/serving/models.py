"""Directories that look like models to whoever reads only their configuration."""

from __future__ import annotations

import json
from pathlib import Path

from reward_loop import load_config
from reward_loop.config import RewardLoopConfig


def model_dir(path: Path, architecture: str = "Qwen2ForSequenceClassification") -> str:
    """Make the directory of a model of this architecture, and return its path."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    return str(path)


def config_of(path: str, **reward_model: object) -> RewardLoopConfig:
    """Return the configuration of a reward model on the CPU."""
    section = {"enable": True, "model": {"path": path}, "server": {"device": "cpu"}, **reward_model}
    return load_config({"reward_model": section})
