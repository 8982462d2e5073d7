"""What a composer made of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Composed:
    """The reward of one step, and what it is made of; every dict is by rubric, in the order in which they were declared.

    A rubric that was not due, or failed, is absent from `components`: a 0 would spoil its mean.
    """

    reward: float | None
    """The sum; None, which is no reward, where a rubric failed whose `on_error` is "mask"."""
    components: dict[str, float]
    """Normalised scores, unweighted: weighing them anew later is exact."""
    raw: dict[str, float]
    """Scores as the rubrics gave them."""
    contributions: dict[str, float]
    """What each rubric adds to the reward."""
    extra: dict[str, Mapping[str, Any]]
    """What rubrics returned besides, and as `components` the scores of the rubrics below them; of those that said something."""
    failures: dict[str, str]
    """Why rubrics failed that did not fail the sample."""
    mutated: tuple[str, ...]
    """The rubrics that wrote into the action or observation; these were copies."""
    weights: Mapping[str, float]
    """The weights that were used."""
