"""Scale the observed range to [0, 1]."""

from __future__ import annotations

import math

from reward_loop.rubrics.normalizer.history import History
from reward_loop.rubrics.normalizer.method import Method


class MinMax(Method):
    """The place between the least and the greatest reward seen; `degenerate` where they are the same."""

    def __init__(self, degenerate: float) -> None:
        if not math.isfinite(degenerate):
            raise ValueError(f"degenerate={degenerate} must be a finite number")
        self._degenerate = degenerate

    def normalize(self, seen: History, reward: float) -> float:
        """Return (reward - min) / (max - min), within [0, 1] also where statistics are frozen and did not see the reward."""
        low, high = seen.moments.low, seen.moments.high
        return scaled(min(max(reward, low), high), low, high, self._degenerate)


def scaled(reward: float, low: float, high: float, degenerate: float) -> float:
    """Return (reward - low) / (high - low); `degenerate` where low is high."""
    return (reward - low) / (high - low) if high > low else degenerate
