"""Numbers of a scored file, gathered one by one: how often, how far apart, how they go with the reward.

Invariant: memory does not grow with the number of values, nor with that of the names that they come under.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from reward_loop.runs.report_plots import Bar

OTHERS = "(others)"
_MOST_NAMES = 40
"""Sources, reasons and components beyond these many are counted together: their number must not grow with the file."""
_EXACT_VALUES = 12
_MOST_BINS = 48
_EXACT_SECONDS = 2_000
_SECONDS_RATIO = 1.02
_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))

T = TypeVar("T")


class Distribution:
    """How often each value occurs: exact for a few distinct values, then in at most 48 bins a power of two wide."""

    def __init__(self) -> None:
        self.width = 0.0
        self._counts: dict[float, int] = {}
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Count one finite value."""
        self._low, self._high = min(self._low, value), max(self._high, value)
        if self.width:
            self._widen()
        self._count(value, 1)
        if not self.width and len(self._counts) > _EXACT_VALUES:
            exact, self._counts = self._counts, {}
            span = max(self._high / _MOST_BINS - self._low / _MOST_BINS, 1e-300)
            self.width = 2.0 ** math.ceil(math.log2(span))
            for known, count in exact.items():
                self._count(known, count)

    def bars(self) -> list[Bar]:
        """Ascending; bins in between that hold nothing are there too."""
        if not self.width:
            return [Bar(value, value, count) for value, count in sorted(self._counts.items())]
        bins = range(int(min(self._counts)), int(max(self._counts)) + 1)
        return [Bar(bin_ * self.width, (bin_ + 1) * self.width, self._counts.get(bin_, 0)) for bin_ in bins]

    def _count(self, value: float, count: int) -> None:
        key = math.floor(value / self.width) if self.width else value
        self._counts[key] = self._counts.get(key, 0) + count

    def _widen(self) -> None:
        while self._high / self.width - self._low / self.width > _MOST_BINS:
            self.width *= 2
            halved: dict[float, int] = {}
            for key, count in self._counts.items():
                halved[key // 2] = halved.get(key // 2, 0) + count
            self._counts = halved


class Latencies:
    """Percentiles of seconds: exact up to 2,000 samples, then within 1 % (logarithmic bins); the maximum is exact."""

    def __init__(self) -> None:
        self.samples = 0
        self.longest = 0.0
        self._exact: list[float] = []
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count one sample."""
        seconds = max(seconds, 1e-9)
        self.samples += 1
        self.longest = max(self.longest, seconds)
        self._exact.append(seconds)
        if len(self._exact) > _EXACT_SECONDS or self._bins:
            self._bins.update(round(math.log(value, _SECONDS_RATIO)) for value in self._exact)
            self._exact.clear()

    def percentiles(self) -> tuple[tuple[str, float], ...]:
        """(name, seconds) from the median to the maximum; there must be a sample."""
        return tuple((name, self._quantile(share)) for name, share in _PERCENTILES)

    def _quantile(self, share: float) -> float:
        rank = max(1, math.ceil(share * self.samples))
        if not self._bins:
            return sorted(self._exact)[rank - 1]
        seen = 0
        for bin_, count in sorted(self._bins.items()):
            seen += count
            if seen >= rank and rank < self.samples:
                return min(_SECONDS_RATIO**bin_, self.longest)
        return self.longest


@dataclass(slots=True)
class Values:
    """Mean, spread and distribution of numbers, and their correlation with the reward of the same row."""

    count: int = 0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    distribution: Distribution = field(default_factory=Distribution)
    _squares: float = 0.0
    _reward_mean: float = 0.0
    _reward_squares: float = 0.0
    _products: float = 0.0

    def add(self, value: float, reward: float) -> None:
        """Count one pair (Welford's update, which stays exact where sums of squares do not)."""
        self.count += 1
        before, reward_before = value - self.mean, reward - self._reward_mean
        self.mean += before / self.count
        self._reward_mean += reward_before / self.count
        self._squares += before * (value - self.mean)
        self._reward_squares += reward_before * (reward - self._reward_mean)
        self._products += before * (reward - self._reward_mean)
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.distribution.add(value)

    @property
    def std(self) -> float:
        """The standard deviation of all values seen."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0

    @property
    def correlation(self) -> float | None:
        """Pearson's, with the reward; None where one of the two is constant."""
        spread = math.sqrt(self._squares) * math.sqrt(self._reward_squares)
        return self._products / spread if spread else None


def slot(known: dict[Any, T], key: object, others: object, make: Callable[[], T]) -> T:
    """The entry of `key`, made where there is none; that of `others` where there are too many."""
    if key not in known and len(known) >= _MOST_NAMES:
        key = others
    if key not in known:
        known[key] = make()
    return known[key]


def finite_number(value: object) -> float | None:
    """The number that `value` is (a bool counts as 0 or 1); None for anything else."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


def numbers(value: object) -> dict[str, float]:
    """The numbers in an object, by name; none where it is no object. Parquet gives a name that a row lacks as None."""
    held = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    found = ((name, finite_number(one)) for name, one in held.items())
    return {name: number for name, number in found if number is not None}
