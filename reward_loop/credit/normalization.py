"""From rewards to advantages: what is subtracted, what is divided by.

Invariants: every sample that counts weighs the same, however many steps it has; what has no reward changes no statistic; where
there is nothing to compare with (a group of one, equal rewards) the advantage is exactly 0. Sums are exact (fsum), so the order
of the samples changes nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from reward_loop.errors import ConfigError, DataError

Center: TypeAlias = Literal["group", "batch", "none"]
Scale: TypeAlias = Literal["none", "group", "batch"]

_Samples: TypeAlias = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Normalization:
    """A = (R - mean) / (std + eps), with the mean of the group or the batch, and the std of neither (the default) or one of them.

    `ddof` 1 is the sample's std, 0 the population's. Centring alone is Dr. GRPO (arXiv:2503.20783); `scale="group"` is GRPO
    (arXiv:2402.03300); the group's mean with the std of all advantages of the batch is ScaleRL (arXiv:2510.13786).
    """

    center: Center = "group"
    scale: Scale = "none"
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.center not in get_args(Center) or self.scale not in get_args(Scale):
            raise ConfigError(f"center={self.center!r} is one of {get_args(Center)}, scale={self.scale!r} of {get_args(Scale)}")
        if self.ddof not in (0, 1) or not 0.0 <= self.eps < math.inf:
            raise ConfigError(f"ddof={self.ddof} must be 0 or 1, eps={self.eps} a number that is not negative")
        if self.scale != "none" and self.center not in ("group", self.scale):
            # Equal rewards would be divided by eps, and not be 0 before.
            raise ConfigError(f"scale={self.scale!r} with center={self.center!r} blows up equal rewards; centre by group")

    def advantages(self, samples: _Samples, groups: Sequence[Hashable]) -> list[list[float]]:
        """Return the advantage of every step of every sample, of the samples' shape; a sample without steps does not count.

        With several steps, mean and variance are those of the samples' own averages over their steps.
        """
        if len(samples) != len(groups):
            raise DataError(f"{len(samples)} samples have {len(groups)} groups; name the group of each")
        result = [list(steps) for steps in samples]
        if self.center == "none":
            return result
        rows_of: defaultdict[Hashable, list[int]] = defaultdict(list)
        for row, group in enumerate(groups):
            if samples[row]:
                rows_of[group if self.center == "group" else None].append(row)
        for rows in rows_of.values():
            centered = _centered([samples[row] for row in rows])
            self._put(result, rows, self._scaled(centered) if self.scale == "group" else centered)
        if self.scale == "batch":
            rows = [row for rows in rows_of.values() for row in rows]
            self._put(result, rows, self._scaled([result[row] for row in rows]))
        return result

    def _scaled(self, samples: list[list[float]]) -> list[list[float]]:
        std = _std(samples, self.ddof)
        return samples if std == 0.0 else [[value / (std + self.eps) for value in steps] for steps in samples]

    @staticmethod
    def _put(result: list[list[float]], rows: Sequence[int], samples: Sequence[list[float]]) -> None:
        for row, steps in zip(rows, samples, strict=True):
            result[row] = steps


CENTERED = Normalization()
"""The group's mean is subtracted, nothing else: what Tinker, prime-rl and Dr. GRPO do."""

VERL_GRPO = Normalization(scale="group", ddof=1, eps=1e-6)
"""GRPO as verl computes it, but for a group of one: 0 here, its bare reward there."""

TRL_GRPO = Normalization(scale="group", ddof=1, eps=1e-4)
"""GRPO as TRL computes it."""

SEED_GRPO = Normalization(scale="group", ddof=0, eps=1e-8)
"""GRPO as seed 000 (6.5) computes it, but per rollout and not per step, so that long rollouts do not weigh more."""

SCALERL = Normalization(scale="batch", ddof=0, eps=1e-8)
"""ScaleRL (arXiv:2510.13786): the group's mean is subtracted, then all is divided by the std of the batch's advantages."""


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[Hashable], normalization: Normalization = CENTERED
) -> list[float]:
    """Return one advantage per sample, in order; a sample whose reward is None does not count and gets 0."""
    samples = [[] if reward is None else [reward] for reward in rewards]
    return [steps[0] if steps else 0.0 for steps in normalization.advantages(samples, groups)]


def _centered(samples: _Samples) -> list[list[float]]:
    values = [value for steps in samples for value in steps]
    if len(samples) == 1 or min(values) == max(values):  # the mean of equal numbers need not be that number in floats
        return [[0.0] * len(steps) for steps in samples]
    mean = _mean(samples)
    return [[value - mean for value in steps] for steps in samples]


def _mean(samples: _Samples) -> float:
    return math.fsum(math.fsum(steps) / len(steps) for steps in samples) / len(samples)


def _std(samples: _Samples, ddof: int) -> float:
    if len(samples) <= ddof:
        return 0.0
    mean = _mean(samples)
    spread = math.fsum(math.fsum((value - mean) ** 2 for value in steps) / len(steps) for steps in samples)
    return math.sqrt(spread / (len(samples) - ddof))
