"""Weights that change with the episode: pure functions, so that a run which is resumed needs no state to go on.

    0.5                                                              constant
    {type: constant, value: 0.5}
    {type: linear, episodes: [1000, 5000], values: [1.0, 0.0]}       straight from one value to the other
    {type: cosine, episodes: [1000, 5000], values: [1.0, 0.0]}       along half a cosine: slow at both ends
    {type: piecewise, points: [[0, 0.1], [1000, 1.0], [5000, 0.0]]}  straight from point to point
    {type: step, points: [[0, 1.0], [1000, 0.5]]}                    from each episode on this value

Invariants: before its first point a schedule has the first value, after its last one the last, exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from reward_loop.errors import ConfigError
from reward_loop.rubrics.refusal import unknown

Episode = Annotated[int, Field(ge=0, strict=True)]
Value = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Point: TypeAlias = tuple[Episode, Value]


class _Schedule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Constant(_Schedule):
    """One value."""

    type: Literal["constant"] = "constant"
    value: Value

    def __call__(self, episode: float) -> float:
        """Return the value, whatever the episode."""
        del episode
        return self.value


class _Points(_Schedule):
    points: tuple[Point, ...] = Field(min_length=1)
    """Episodes, each later than the one before, and values."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _check_order([episode for episode, _ in self.points])
        return self


class Piecewise(_Points):
    """Straight lines from point to point."""

    type: Literal["piecewise"] = "piecewise"

    def __call__(self, episode: float) -> float:
        """Return the value at an episode."""
        after = bisect_right(self.points, episode, key=lambda point: point[0])
        if after in (0, len(self.points)):
            return self.points[max(after - 1, 0)][1]
        (start, first), (end, last) = self.points[after - 1], self.points[after]
        return _between(first, last, (episode - start) / (end - start))


class Step(_Points):
    """From the episode of each point on its value."""

    type: Literal["step"] = "step"

    def __call__(self, episode: float) -> float:
        """Return the value at an episode."""
        after = bisect_right(self.points, episode, key=lambda point: point[0])
        return self.points[max(after - 1, 0)][1]


class _FromTo(_Schedule):
    episodes: tuple[Episode, Episode]
    """The first and the last episode of the change."""
    values: tuple[Value, Value]
    """The value before and after it."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _check_order(self.episodes)
        return self

    def _share(self, episode: float) -> float:
        """How much of the change is over."""
        start, end = self.episodes
        return min(max((episode - start) / (end - start), 0.0), 1.0)


class Linear(_FromTo):
    """A straight line from one value to another."""

    type: Literal["linear"] = "linear"

    def __call__(self, episode: float) -> float:
        """Return the value at an episode."""
        return _between(*self.values, self._share(episode))


class Cosine(_FromTo):
    """Half a cosine from one value to another."""

    type: Literal["cosine"] = "cosine"

    def __call__(self, episode: float) -> float:
        """Return the value at an episode."""
        share = self._share(episode)
        return _between(*self.values, share if share in (0.0, 1.0) else (1.0 - math.cos(math.pi * share)) / 2.0)


Schedule: TypeAlias = Constant | Linear | Cosine | Piecewise | Step

_KINDS: dict[str, type[Schedule]] = {
    "constant": Constant,
    "linear": Linear,
    "cosine": Cosine,
    "piecewise": Piecewise,
    "step": Step,
}


def schedule_of(given: Schedule | Mapping[str, Any] | float, name: str = "the schedule") -> Schedule:
    """Return the schedule that a mapping or a number describes; ConfigError that says of `name` what is wrong with it."""
    if isinstance(given, _Schedule):
        return given
    mapping = dict(given) if isinstance(given, Mapping) else {"type": "constant", "value": given}
    kind = mapping.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(f"{name}: {unknown('unknown_key', 'type of schedule', kind, _KINDS).message}")
    try:
        return _KINDS[kind].model_validate(mapping)
    except ValidationError as error:
        raise ConfigError(f"{name}: {'; '.join(_problems(error))}") from None


def schedules_of(given: Mapping[str, Schedule | Mapping[str, Any] | float]) -> dict[str, Schedule]:
    """Return the schedules of rubrics' weights, by the rubrics' names."""
    return {name: schedule_of(schedule, f"the schedule of {name!r}") for name, schedule in given.items()}


def _between(first: float, last: float, share: float) -> float:
    # Not first + share * (last - first), which ends beside `last`, and is infinite for the largest values.
    return (1.0 - share) * first + share * last


def _check_order(episodes: list[int] | tuple[int, ...]) -> None:
    if any(later <= earlier for earlier, later in pairwise(episodes)):
        raise ValueError(f"each episode must be later than the one before; they are {list(episodes)}")


def _problems(error: ValidationError) -> Iterator[str]:
    for detail in error.errors():
        place = ".".join(map(str, detail["loc"]))
        yield f"{f'{place}: ' if place else ''}{detail['msg'].removeprefix('Value error, ')} (got {detail['input']!r:.100})"
