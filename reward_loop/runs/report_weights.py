"""How the weights of rubrics went, by what was written down: a live configuration's audit, a reward log, or the scored rows.

Invariant: memory does not grow with the file; after 10,000 different versions or steps, more are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from reward_loop.errors import DataError
from reward_loop.runs.report_values import numbers

_WEIGHTS = "reward/weights/"
_MOST_PLACES = 10_000
_MOST_POINTS = 200
_MOST_NAMES = 40
Axis = Literal["configuration version", "step"]


@dataclass(frozen=True, slots=True)
class WeightLine:
    """One rubric's weight: (place, weight) where it changed, ascending; it holds until the next, the last one until `end`."""

    name: str
    points: tuple[tuple[int, float], ...]
    end: int
    changes: int


class WeightHistory:
    """Weights by version or step, which may come in any order."""

    def __init__(self, axis: Axis) -> None:
        self.axis: Axis = axis
        self.cut = False
        """Whether there were more places than are kept."""
        self._at: dict[int, dict[str, float]] = {}

    def add(self, place: int, weights: Mapping[str, float]) -> None:
        """Note weights that hold from this version or step on; those that are not named stay as they were."""
        if not weights:
            return
        if place not in self._at and len(self._at) >= _MOST_PLACES:
            self.cut = True
            return
        self._at.setdefault(place, {}).update(weights)

    def add_before(self, place: int, weights: Mapping[str, float]) -> None:
        """Note weights that held until this version."""
        known = self._at.get(place - 1, {})
        self.add(place - 1, {**weights, **known})

    @property
    def known(self) -> bool:
        """Whether there are any weights."""
        return bool(self._at)

    def lines(self) -> list[WeightLine]:
        """Return the weights that changed, by name; none where all stayed as they were."""
        lines = [self._line(name) for name in sorted({name for weights in self._at.values() for name in weights})]
        return [line for line in lines if line.changes][:_MOST_NAMES]

    def _line(self, name: str) -> WeightLine:
        points: list[tuple[int, float]] = []
        for place in sorted(self._at):
            weight = self._at[place].get(name)
            if weight is not None and (not points or points[-1][1] != weight):
                points.append((place, weight))
        return WeightLine(name, tuple(_thinned(points)), max(self._at), len(points) - 1)


def audit_of(summary: Mapping[str, Any]) -> Path | None:
    """Return the file in which the run's live configuration was to write its changes, if its own configuration names one."""
    settings: Any = summary
    for key in ("config", "reward_model", "reward_kwargs", "config_server", "audit"):
        settings = cast("dict[str, Any]", settings).get(key) if isinstance(settings, dict) else None
    return Path(settings) if isinstance(settings, str) else None


def read_weights(path: Path) -> WeightHistory:
    """Return the weights that an audit or a reward log holds. Raises DataError for a file that can't be read, or holds none."""
    by_version, by_step = WeightHistory("configuration version"), WeightHistory("step")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                _read_line(_parsed(line), by_version, by_step)
    except OSError as error:
        raise DataError(f"{path}: the weights can't be read ({error.strerror})") from error
    for history in (by_version, by_step):
        if history.known:
            return history
    raise DataError(f"{path} holds no weights; give the audit of a live configuration, or a log of RewardLogger('jsonl')")


def _read_line(line: Mapping[str, Any], by_version: WeightHistory, by_step: WeightHistory) -> None:
    version, step = line.get("version"), line.get("step")
    if isinstance(version, int):
        by_version.add_before(version, _weights(line.get("old")))
        by_version.add(version, _weights(line.get("new")))
    elif isinstance(step, int):
        weights = {name: value for name, value in line.items() if name.startswith(_WEIGHTS)}
        by_step.add(step, {name.removeprefix(_WEIGHTS): weight for name, weight in numbers(weights).items()})


def _parsed(line: str) -> dict[str, Any]:
    """Return the object of a line; an empty one for what a killed process left of a line."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}


def _weights(change: object) -> dict[str, float]:
    return numbers(cast("dict[str, Any]", change).get("weights")) if isinstance(change, dict) else {}


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most 200 of them, evenly chosen, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return points
    stride = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(number * stride)] for number in range(_MOST_POINTS)]
