"""A range that someone configured."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ANYWHERE = (-math.inf, math.inf)


def interval(name: str, value: Sequence[float], within: tuple[float, float] = _ANYWHERE) -> tuple[float, float]:
    """Return it as (low, high). Raises ValueError unless it is two numbers `within` these, the lower one first."""
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}={value!r:.200} must be two numbers, (low, high)") from error
    if not within[0] <= low < high <= within[1]:
        among = "" if within == _ANYWHERE else f" between {within[0]:g} and {within[1]:g}"
        raise ValueError(f"{name}={value!r:.200} must be (low, high) with low < high{among}")
    return low, high
