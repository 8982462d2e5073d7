"""How the metrics of a run went, read from its metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_loop.errors import DataError
from reward_loop.runs.report_values import numbers

_MOST_POINTS = 400
_SECTIONS = (
    ("Rewards and accuracy", ("reward", "env/", "test/", "train_accuracy", "train_reward")),
    ("Loss, distance and entropy", ("train_", "optim/", "kl")),
    ("Time and throughput", ("time/", "throughput/")),
)
_OTHERS = "Everything else"


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric: (step, value), ascending, at most a few hundred of them."""

    name: str
    points: tuple[tuple[int, float], ...]
    last: float


def read_curves(path: Path) -> list[Curve]:
    """Return every metric of a metrics.jsonl, by name. Raises DataError for a file that can't be read, or has no step."""
    values: dict[str, list[tuple[int, float]]] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                parsed = _parsed(line)
                step = parsed.pop("step", None)
                parsed.pop("time", None)
                if isinstance(step, int):
                    for name, value in numbers(parsed).items():
                        values.setdefault(name, []).append((step, value))
    except OSError as error:
        raise DataError(f"{path}: the metrics can't be read ({error.strerror}); give the log_path of a run") from error
    if not values:
        raise DataError(f"{path} holds no step yet")
    return [Curve(name, _thinned(points), points[-1][1]) for name, points in sorted(values.items())]


def by_section(curves: list[Curve]) -> Mapping[str, list[Curve]]:
    """Return the curves under the headings of the page, those that everybody looks at first."""
    sections: dict[str, list[Curve]] = {title: [] for title in (*(title for title, _ in _SECTIONS), _OTHERS)}
    for curve in curves:
        title = next((title for title, starts in _SECTIONS if curve.name.startswith(starts)), _OTHERS)
        sections[title].append(curve)
    return {title: found for title, found in sections.items() if found}


def _parsed(line: str) -> dict[str, Any]:
    """Return the object of a line; an empty one for what a killed process left of a line."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _thinned(points: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return means of neighbours where there are too many points to draw."""
    if len(points) <= _MOST_POINTS:
        return tuple(points)
    size = -(-len(points) // _MOST_POINTS)
    parts = [points[begin : begin + size] for begin in range(0, len(points), size)]
    return tuple((part[-1][0], sum(value for _, value in part) / len(part)) for part in parts)
