"""Algorithms by name: nothing but settings of the same loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

PresetName: TypeAlias = Literal["grpo", "dr_grpo", "dapo"]

PRESETS: Mapping[PresetName, Mapping[str, Any]] = {
    "grpo": {
        "loss_fn": "ppo",
        "advantage": {"scale": "group", "ddof": 1, "eps": 1e-6},
        "aggregation": "seq-mean-token-mean",
    },
    "dr_grpo": {
        "loss_fn": "ppo",
        "advantage": {"scale": "none"},
        "aggregation": "seq-mean-token-sum-norm",
    },
    "dapo": {
        "loss_fn": "ppo",
        "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28},
        "advantage": {"scale": "group", "ddof": 1, "eps": 1e-6},
        "aggregation": "token-mean",
        "remove_constant_reward_groups": True,
        "overlong": {"factor": 1.0},
    },
}
"""GRPO (arXiv:2402.03300), Dr. GRPO (arXiv:2503.20783: no std, a constant divisor) and DAPO (arXiv:2503.14476: clips higher up,
means over tokens, drops groups of equal rewards, and takes from answers that come near the limit)."""


def with_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on top of those of their `preset`; what they say wins."""
    name = settings.get("preset")
    base = PRESETS.get(name, {}) if isinstance(name, str) else {}  # type: ignore[call-overload]  # a wrong name: pydantic's
    merged = {**base, **settings}
    for key, value in base.items():
        if isinstance(value, Mapping) and isinstance(settings.get(key), Mapping):
            merged[key] = {**value, **settings[key]}
    return merged
