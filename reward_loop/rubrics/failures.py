"""What becomes of a rubric that fails: its error bears its name, and the rubric's `on_error` says what the sample is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.errors import RewardLoopError, RubricError, Unscorable
from reward_loop.outcome import ErrorPolicy, describe, finite

OnRubricError = str | Mapping[str, Any] | ErrorPolicy
"""raise: the sample fails; mask: it has no reward; {"value": x}, or "value:x": it counts as if the rubric had given x."""


def checked_policy(name: str, on_error: Any) -> ErrorPolicy:
    """Return a rubric's policy; ValueError for what is none."""
    if isinstance(on_error, ErrorPolicy):
        return on_error
    if on_error == "raise":
        return ErrorPolicy("raise")
    if on_error == "mask":
        return ErrorPolicy("mask")
    value = on_error.get("value") if isinstance(on_error, Mapping) and len(on_error) == 1 else getattr(on_error, "value", None)
    if isinstance(on_error, str) and on_error.startswith("value:"):
        value = _number(on_error.removeprefix("value:"))
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) != float("inf"):
        return ErrorPolicy("value", finite(value))
    raise ValueError(f'on_error of rubric {name} is {on_error!r}; it must be "raise", "mask" or {{"value": a number}}')


def named(error: BaseException, name: str) -> RewardLoopError:
    """Return a rubric's error as one that bears its name; one that says that the sample can't be judged stays of its class."""
    if isinstance(error, Unscorable):
        unscorable = Unscorable(f"rubric {name}: {error.message}", error.sample)
        unscorable.__cause__ = error
        return unscorable
    if isinstance(error, RubricError):
        error.rubric = name if error.rubric in (None, name) else f"{name}.{error.rubric}"
        return error
    failed = RubricError(describe(error), rubric=name)
    failed.__cause__ = error
    return failed


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
