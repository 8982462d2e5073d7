"""Rewards computed in Ray actors: the reward loop's own workers, which rinker has no second kind of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.errors import ConfigError


def on_ray(reward_loop: Mapping[str, Any], actors: int) -> dict[str, Any]:
    """Return a reward loop's configuration by which `actors` Ray actors score; ConfigError where it says something else.

    A worker that dies is restarted, and what it had is scored again (`reward_loop.loop.ray_executor`).
    """
    section = dict(reward_loop.get("reward_model") or {})
    wanted = {"executor": "ray", "num_workers": actors}
    for name, value in wanted.items():
        if section.get(name, value) != value:
            raise ConfigError(
                f"reward_model.{name}={section[name]!r}, and the runtime wants {value!r}; leave it out, or rewards=null"
            )
    return {**reward_loop, "reward_model": section | wanted}
