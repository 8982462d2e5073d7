"""Reading a score out of what a judge wrote: JSON first, then a labelled number, then the only number there is.

Invariant: a text that may mean several scores, or none, gives None, never a guess.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_SCORE = re.compile(
    rf"(?<![\w.,])(?P<value>{_NUMBER})(?:\s*(?P<percent>%)|\s*(?:/|\bout\s+of\b)\s*(?P<most>{_NUMBER}))?"
    r"(?![\w%/]|[.,]\d)"
)
_LABEL = re.compile(r"\b(?:score|rating|grade)\b(?P<label>[^\n:=]{0,60}?)(?:[:=]|\bis\b)[\s*_`\"']*", re.IGNORECASE)
_RANGE = re.compile(rf"({_NUMBER})\s*(?:-|\u2013|to|\.\.)\s*({_NUMBER})")
_THOUGHT = "</think>"
_HUGE = 1e300


@dataclass(frozen=True, slots=True)
class Reading:
    """A score as it was written, and the scale that was written with it: "8/10" is 8 of (0, 10)."""

    value: float
    scale: tuple[float, float] | None = None

    def on(self, scale: tuple[float, float]) -> float | None:
        """Return the score on a scale; None where it was written on one of another width."""
        if self.scale is None or self.scale == scale:
            return self.value
        (low, high), (bottom, top) = self.scale, scale
        if high <= low:
            return None
        return bottom + (self.value - low) / (high - low) * (top - bottom)


def read_score(text: str) -> Reading | None:
    """Return the one score that a text gives; None where it gives none, or several that differ."""
    text = text.rpartition(_THOUGHT)[2].strip()
    # JSON of another form, or cut off in the middle of a number, must not be read as a text.
    for find in (_in_json,) if text.startswith(("{", "[")) else (_in_json, _labelled, _anywhere):
        if found := set(find(text)):
            reading = found.pop()
            return None if found or not math.isfinite(reading.value) else reading
    return None


def read_by(pattern: re.Pattern[str], text: str) -> Reading | None:
    """Return the score that a pattern finds first: in its first group, or where it has none in the whole match."""
    match = pattern.search(text)
    try:
        value = math.nan if match is None else float(match[1] if match.re.groups else match[0])
    except (TypeError, ValueError):
        return None
    return Reading(value) if math.isfinite(value) else None


def _in_json(text: str) -> Iterator[Reading]:
    """Yield the scores of the JSON objects in a text."""
    # Not strict: models write control characters into texts, and vLLM lets them.
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    while start >= 0:
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            if start == 0:
                return
            end = start + 1
        else:
            if isinstance(found, dict) and "score" in found:
                yield from _of_value(found["score"])
        start = text.find("{", end)


def _of_value(score: Any) -> Iterator[Reading]:
    if isinstance(score, int | float):
        yield Reading(float(score) if abs(score) < _HUGE else math.inf)
    elif isinstance(score, str):
        yield from _anywhere(score)


def _labelled(text: str) -> Iterator[Reading]:
    """Yield the numbers that a label such as "Score (0-10):" announces."""
    for label in _LABEL.finditer(text):
        match = _SCORE.match(text, label.end())
        if match and not _RANGE.match(text, label.end()):
            reading = _reading(match)
            spread = _RANGE.search(label["label"])
            if spread and reading.scale is None:
                reading = Reading(reading.value, (float(spread[1]), float(spread[2])))
            yield reading


def _anywhere(text: str) -> Iterator[Reading]:
    yield from map(_reading, _SCORE.finditer(text))


def _reading(match: re.Match[str]) -> Reading:
    value = float(match["value"])
    if match["percent"]:
        return Reading(value, (0.0, 100.0))
    return Reading(value, (0.0, float(match["most"])) if match["most"] else None)
