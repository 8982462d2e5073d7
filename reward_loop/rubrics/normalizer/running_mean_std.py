"""Subtract the mean, divide by the standard deviation."""

from __future__ import annotations

from reward_loop.rubrics.normalizer.history import History
from reward_loop.rubrics.normalizer.method import Method


class RunningMeanStd(Method):
    """The z-score (ddof 0); 0 where the standard deviation is below `eps`, as it is after one reward."""

    def __init__(self, eps: float) -> None:
        self._eps = eps

    def normalize(self, seen: History, reward: float) -> float:
        """Return (reward - mean) / std."""
        std = seen.moments.std
        return (reward - seen.moments.mean) / std if std >= self._eps else 0.0
