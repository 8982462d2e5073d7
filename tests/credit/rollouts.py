"""Rollouts that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Sequence

from reward_loop.credit import Rollout, Step

KEY = "rm_score"
TOLERANCE = 1e-12


def rollout(name: str, rewards: Sequence[float] = (0.0,), group: object = "g", **meta: object) -> Rollout:
    """A rollout with a step for each reward."""
    steps = [Step(index, f"see {index}", f"do {index}", reward) for index, reward in enumerate(rewards)]
    return Rollout(name, steps, {"group_id": group, **meta})


def pair(b: Sequence[float] = (1.0, 0.0), s: Sequence[object] = (0.2, 0.8)) -> list[Rollout]:
    """One group of rollouts of one step each: the environment gave b, the reward model s."""
    return [rollout(f"r{row}", [reward], rm_score=score) for row, (reward, score) in enumerate(zip(b, s, strict=True))]
