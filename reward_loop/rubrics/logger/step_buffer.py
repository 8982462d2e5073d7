"""The samples of one step, summed up as they come: memory does not grow with their number.

Invariants: a mean is over the samples that have the value: a rubric that was not run, or a sample without a reward, is in none;
what is refused leaves nothing behind.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from reward_loop.errors import InvalidReward
from reward_loop.outcome import finite
from reward_loop.rubrics.judges.usage import JudgeUsage
from reward_loop.rubrics.logger.record import ConfigUpdate, Record
from reward_loop.rubrics.weights import checked_name, checked_weight

RESERVED = frozenset({"total", "weights"})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class StepBuffer:
    """Means, sums, weights and configuration updates of one step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.samples = 0
        self._means: dict[str, tuple[float, int]] = {}
        self._sums: dict[str, float] = {}
        self._episode: int | None = None
        self._weights: dict[str, float] = {}
        self._updates: list[ConfigUpdate] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.samples or self._sums or self._updates)

    def add(self, metrics: Mapping[str, float], episode: int | None, weights: Mapping[str, float]) -> None:
        """Count one sample in the means of its metrics; the last weights and the highest episode stand."""
        self.samples += 1
        for name, value in metrics.items():
            total, count = self._means.get(name, (0.0, 0))
            self._means[name] = (total + value, count + 1)
        self._weights.update(weights)
        if episode is not None:
            self._episode = episode if self._episode is None else max(self._episode, episode)

    def add_usage(self, usage: JudgeUsage) -> None:
        """Add what judges used to the step's sums."""
        for name, value in asdict(usage).items():
            metric = f"judge/{name}"
            self._sums[metric] = self._sums.get(metric, 0.0) + value

    def add_update(self, update: ConfigUpdate) -> None:
        """Note a new configuration."""
        self._updates.append(update)

    def record(self, time: float) -> Record:
        """Return what is to be written."""
        metrics = {name: total / count for name, (total, count) in self._means.items()}
        if self.samples:
            metrics["progress/samples"] = float(self.samples)
        if self._episode is not None:
            metrics["progress/episode"] = float(self._episode)
        return Record(self.step, time, {**metrics, **self._sums}, dict(self._weights), tuple(self._updates))


def sample_metrics(reward: float | None, components: Mapping[str, float | None]) -> dict[str, float]:
    """Return the metrics of one sample; None is no number and left out. Raises ValueError for a bad name or value."""
    named = {"reward/total": reward, **{f"reward/{_loggable(name)}": score for name, score in components.items()}}
    return {name: _number(name, value) for name, value in named.items() if value is not None}


def checked_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return them as floats, by the rubric's name. Raises ValueError or TypeError for a bad name or value."""
    return {_loggable(name): checked_weight(name, weight) for name, weight in weights.items()}


def _number(name: str, value: object) -> float:
    try:
        return finite(value)
    except InvalidReward as error:
        raise ValueError(f"{name}: {error}") from None


def whole_number(name: str, value: Any) -> int:
    """Return it as an int, also one of numpy. Raises ValueError, with its name, for what is none or negative."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"{name}={value!r:.200} must be a whole number that is not negative")
    return number


def environment_metric(env_id: str | int) -> str:
    """Return the metric of an environment's mean reward; what can't stand in a metric's name becomes '_'."""
    return f"env/{_NOT_IN_NAMES.sub('_', str(env_id))[:64] or '_'}/reward"


def _loggable(name: object) -> str:
    """Return a rubric's name. Raises ValueError where a metric of this name is something else."""
    checked = checked_name(name)
    if checked in RESERVED:
        raise ValueError(f"rubric {name!r}: 'reward/{name}' means something else in the log; give the rubric another name")
    return checked
