"""Count, mean, variance and range of numbers, which can be merged: Welford's update is a merge with one number.

Invariants: never empty; the same numbers give the same bits in any order (fsum is exact); equal numbers have a variance of
exactly 0; sums of squares are of differences from the mean, so that 1e9 + [0, 1, 2] keeps its variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moments:
    """What is known of `n` numbers; `m2` is the sum of their squared differences from the mean."""

    n: int
    mean: float
    m2: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments:
        """Return those of one or more numbers."""
        low, high = min(values), max(values)
        if low == high:  # the mean of equal numbers need not be that number in floats
            return cls(len(values), low, 0.0, low, high)
        mean = math.fsum(values) / len(values)
        return cls(len(values), mean, math.fsum((value - mean) ** 2 for value in values), low, high)

    def merged(self, other: Moments) -> Moments:
        """Return those of both together (Chan, Golub and LeVeque 1979)."""
        n = self.n + other.n
        delta = other.mean - self.mean
        return Moments(
            n,
            self.mean + delta * (other.n / n),
            self.m2 + other.m2 + delta * delta * (self.n * other.n / n),
            min(self.low, other.low),
            max(self.high, other.high),
        )

    @property
    def std(self) -> float:
        """The standard deviation of exactly these numbers (ddof 0)."""
        return math.sqrt(self.m2 / self.n)
