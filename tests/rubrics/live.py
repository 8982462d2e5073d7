"""A live configuration for tests: `task` and `style` per turn, `outcome` at the end; `style` has settings that may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reward_loop.rubrics.live_config import Change, LiveConfig
from reward_loop.rubrics.refusal import refused
from reward_loop.rubrics.reward_config import RewardConfig

UPDATEABLE = {"style": frozenset({"threshold", "words"})}


def reward_config(**weights: float) -> RewardConfig:
    """The configuration, with these weights; else they are 1."""
    style = {"threshold": 0.5, "model": "small"}
    return RewardConfig.load(
        {
            "schema_version": "1.0",
            "per_turn": [
                {"name": "task", "rubric": "builtin.regex", "weight": weights.get("task", 1.0), "config": {"pattern": "x"}},
                {"name": "style", "rubric": "my.Style", "weight": weights.get("style", 1.0), "config": style},
            ],
            "episode_end": [{"name": "outcome", "rubric": "my.Outcome", "weight": weights.get("outcome", 1.0)}],
        }
    )


def check(old: RewardConfig, new: RewardConfig) -> None:
    """Refuse a threshold that is no number, as a rubric that is built with it would."""
    del old
    if not isinstance(threshold := entry(new, "style")["config"]["threshold"], int | float):
        raise refused("bad_config", f"threshold={threshold!r} must be a number")


def live_config(record: Callable[[Change], None] | None = None, **weights: float) -> LiveConfig:
    """The live configuration."""
    return LiveConfig(reward_config(**weights), UPDATEABLE, check=check, record=record)


def entry(config: RewardConfig | dict[str, Any], name: str) -> dict[str, Any]:
    """One rubric's entry of a configuration, or of what a server has answered."""
    shown = config.as_dict() if isinstance(config, RewardConfig) else config
    return next(entry for phase in ("per_turn", "episode_end") for entry in shown[phase] if entry["name"] == name)


def weights_of(config: RewardConfig | dict[str, Any]) -> dict[str, float]:
    """The weights by name."""
    return {name: entry(config, name)["weight"] for name in ("task", "style", "outcome")}
