"""The names and weights of a composer's rubrics, and the one sum that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, Literal, TypeVar

from reward_loop.rubrics.names import is_name

T = TypeVar("T")

Aggregate = Literal["sum", "mean"]


def checked_name(name: object) -> str:
    """Return a rubric's name; ValueError for what experiment trackers can't take."""
    if not is_name(name):
        raise ValueError(f"a rubric can't be called {name!r}: 1 to 64 of the characters A-Z a-z 0-9 _ . - name it")
    return name


def checked_weight(name: str, weight: object) -> float:
    """Return a weight; TypeError for what is no number (True is none), ValueError for NaN and infinity."""
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise TypeError(f"the weight of rubric {name} is {weight!r}; it must be a number")
    if not math.isfinite(weight):
        raise ValueError(f"the weight of rubric {name} is {weight!r}; it must be finite")
    return float(weight)


def checked_flag(name: str, flag: object) -> bool:
    """Return whether a rubric is enabled; TypeError for what is no bool."""
    if not isinstance(flag, bool):
        raise TypeError(f"enabled of rubric {name} is {flag!r}; it must be true or false")
    return flag


def checked(what: str, given: Mapping[str, Any] | None, known: Iterable[str], check: Callable[[str, Any], T]) -> dict[str, T]:
    """Return the checked values by rubric; KeyError for a rubric that there is not."""
    names = set(known)
    if unknown := sorted(str(name) for name in given or {} if name not in names):
        raise KeyError(f"{what}: there is no rubric {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return {name: check(name, value) for name, value in (given or {}).items()}


def contributions(components: Mapping[str, float], weights: Mapping[str, float], aggregate: Aggregate) -> dict[str, float]:
    """Return what each component adds to the reward: weight times score, for "mean" divided by the sum of absolute weights."""
    weighted = {name: weights[name] * score for name, score in components.items()}
    if aggregate == "sum":
        return weighted
    whole = math.fsum(abs(weights[name]) for name in components)
    return {name: share / whole if whole else 0.0 for name, share in weighted.items()}
