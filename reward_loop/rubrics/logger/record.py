"""What is written of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UPDATES = "config/updates"
WEIGHTS = "reward/weights/"


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """The configuration became `version`; `changes` is what changed, as JSON can hold it."""

    version: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """The numbers of one step, at the time (seconds since 1970) when it ended."""

    step: int
    time: float
    metrics: Mapping[str, float]
    weights: Mapping[str, float] = field(default_factory=dict)
    """By the rubric's name: those in force, until the writer leaves only those that changed."""
    updates: tuple[ConfigUpdate, ...] = ()

    def numbers(self) -> dict[str, float]:
        """Return every number under its metric's name; of several configurations the last version's."""
        weights = {f"{WEIGHTS}{name}": weight for name, weight in self.weights.items()}
        updates = {UPDATES: float(self.updates[-1].version)} if self.updates else {}
        return {**self.metrics, **weights, **updates}
