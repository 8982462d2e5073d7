"""Rank a reward among the last ones of its environment: an outlier is no more than the highest."""

from __future__ import annotations

from typing import ClassVar

from reward_loop.rubrics.normalizer.history import History
from reward_loop.rubrics.normalizer.interval import interval
from reward_loop.rubrics.normalizer.method import Method
from reward_loop.rubrics.normalizer.min_max import scaled


class Percentile(Method):
    """The mid-rank: the share of the window that is less, equal rewards counting half, so in (0, 1).

    With `percentile_range=(5, 95)` the 5th percentile becomes 0 and the 95th 1, what lies beyond lies beyond. Where both are the
    same, as they are for rewards that are nearly all 0, the window's least and greatest take their place.
    """

    keeps_window: ClassVar[bool] = True

    def __init__(self, percentile_range: tuple[float, float] | None, degenerate: float) -> None:
        self._range = None if percentile_range is None else interval("percentile_range", percentile_range, within=(0.0, 100.0))
        self._degenerate = degenerate

    def normalize(self, seen: History, reward: float) -> float:
        """Return the reward's rank, or its place in the range of percentiles."""
        if self._range is None:
            return seen.window.rank(reward)
        low, high = map(seen.window.percentile, self._range)
        if low == high:
            low, high = seen.window.low, seen.window.high
        return scaled(reward, low, high, self._degenerate)
