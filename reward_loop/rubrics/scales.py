"""The scale on which a rubric scores, and a score's place on it, between 0 and 1.

Invariant: a scale is declared, never guessed from what was seen: 0.3 may be a third of the way up, or above the middle.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reward_loop.errors import RubricError

logger = logging.getLogger(__name__)

_UNIT = (0.0, 1.0)


class ScaleError(RubricError):
    """A rubric that declares no scale gave a score outside [0, 1]."""


def checked_scale(name: str, scale: Any) -> tuple[float, float]:
    """Return a scale as (lowest, highest); ValueError unless it is two finite numbers, the lower one first."""
    if isinstance(scale, Sequence) and not isinstance(scale, str) and len(scale) == 2:
        low, high = scale
        if all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in scale) and low < high:
            return float(low), float(high)
    raise ValueError(f"the scale of rubric {name} is {scale!r}; it must be [lowest, highest], two numbers, as [-1, 1]")


def declared_scale(name: str, rubric: Any, scales: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return what is declared first: by `scales`, by the rubric's config, by the rubric; None where none of them does."""
    config = getattr(rubric, "config", None)
    of_config = config.get("scale") if isinstance(config, Mapping) else getattr(config, "scale", None)
    for scale in (scales.get(name), of_config, getattr(rubric, "scale", None)):
        if scale is not None:
            return checked_scale(name, scale)
    return None


@dataclass(slots=True)
class Scale:
    """Places scores on a rubric's scale; what lies outside is moved to its end, with one warning."""

    name: str
    declared: tuple[float, float] | None
    strict: bool = False
    _warned: bool = field(default=False, init=False)

    def place(self, score: float) -> float:
        """Return where between 0 and 1 a score lies; ScaleError in strict mode where it was not said that it may lie there."""
        low, high = self.declared or _UNIT
        if low <= score <= high:
            return (score - low) / (high - low)
        remedy = f"declare its scale, as scales={{{self.name!r}: [{min(low, score):g}, {max(high, score):g}]}}"
        if self.strict and self.declared is None:
            raise ScaleError(f"it declares no scale and gave {score!r}, outside [0, 1]; {remedy}", rubric=self.name)
        if not self._warned:
            self._warned = True
            logger.warning(
                "rubric=%s gave %r, outside [%g, %g]: such scores are clipped; %s", self.name, score, low, high, remedy
            )
        return 0.0 if score < low else 1.0


class Raw:
    """Leaves scores as they are (`normalize=False`)."""

    def place(self, score: float) -> float:
        """Return the score."""
        return score
