"""Rollouts and their steps, as credit assignment sees them, and which of them are samples of one group.

Anything with these attributes is taken: a trainer's own rollouts as well as `Rollout`. Invariants: a step is known by its
rollout's id and its own index, so neither may occur twice; a group is what says so in `meta`, never what looks alike.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from reward_loop.errors import DataError, InvalidReward
from reward_loop.outcome import finite
from reward_loop.scoring.reward_client import Input

RolloutStepKey: TypeAlias = tuple[str, int]
"""A rollout's id and the index of one of its steps."""

T = TypeVar("T")


class StepLike(Protocol):
    """One action of a rollout, what was observed before it, and the environment's reward for it."""

    @property
    def index(self) -> int: ...  # noqa: D102
    @property
    def prev_obs(self) -> object: ...  # noqa: D102
    @property
    def action(self) -> object: ...  # noqa: D102
    @property
    def reward(self) -> float: ...  # noqa: D102


class RolloutLike(Protocol):
    """The steps of one episode, in order, and what else is known of it; scorers write into `meta`."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def steps(self) -> Sequence[StepLike]: ...  # noqa: D102
    @property
    def meta(self) -> MutableMapping[str, Any]: ...  # noqa: D102


GroupKey: TypeAlias = str | Callable[[RolloutLike], Hashable]
"""The name of the group's id in a rollout's meta, or a function that returns the id."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action, as text or token ids, with what was observed before it and the environment's reward for it."""

    index: int
    prev_obs: Input
    action: Input
    reward: float = 0.0
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Rollout:
    """The steps of one episode, in order; `meta` holds the group's id and the scores."""

    id: str
    steps: Sequence[Step]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def total_reward(self) -> float:
        """The sum of the environment's rewards."""
        return math.fsum(step.reward for step in self.steps)


def check_rollouts(rollouts: Sequence[RolloutLike]) -> None:
    """Raise DataError where two steps would have the same key: an id given twice, an index twice in one rollout."""
    for name, count in Counter(rollout.id for rollout in rollouts).items():
        if count > 1:
            raise DataError(f"{count} rollouts have this id; give each its own, for credit is told apart by it", sample=str(name))
    for rollout in rollouts:
        for index, count in Counter(step.index for step in rollout.steps).items():
            if count > 1:
                raise DataError(f"{count} steps have the index {index}; number the steps of a rollout", sample=str(rollout.id))


def number(value: object, what: str, rollout: RolloutLike) -> float:
    """Return a finite number, also one of numpy or torch, as a float; InvalidReward names the rollout and `what` it is."""
    try:
        return finite(value)
    except InvalidReward:
        raise InvalidReward(f"{what} must be a finite number; it is {value!r:.100}", sample=str(rollout.id)) from None


def group_ids(rollouts: Sequence[RolloutLike], key: GroupKey = "group_id", size: int | None = None) -> list[Hashable]:
    """Return the group of each rollout: `meta["request_meta"][key]`, else `meta[key]`, or what the function `key` returns.

    DataError for a rollout without one (two equal prompts may be two groups, so nothing can stand in for it), and for a
    group that has not `size` rollouts, where a size is given.
    """
    found = [_group_id(rollout, key) for rollout in rollouts]
    check_sizes(found, size)
    return found


def check_sizes(groups: Sequence[Hashable], size: int | None) -> None:
    """Raise DataError for a group that has not `size` samples, where a size is given."""
    for group, count in Counter(groups).items() if size is not None else ():
        if count != size:
            raise DataError(
                f"group {group!r} has {count} samples, not group_size={size}; "
                "credit whole groups together, or leave group_size out"
            )


def _group_id(rollout: RolloutLike, key: GroupKey) -> Hashable:
    if not isinstance(key, str):
        return _hashable(key(rollout), f"{key}", rollout)
    request = rollout.meta.get("request_meta")
    places: list[Mapping[str, Any]] = [request, rollout.meta] if isinstance(request, Mapping) else [rollout.meta]
    given = [place[key] for place in places if place.get(key) is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise DataError(f"meta names two groups by {key!r}: {given[0]!r:.100} and {given[1]!r:.100}", sample=str(rollout.id))
    return _hashable(given[0] if given else None, f"meta[{key!r}]", rollout)


def _hashable(value: object, what: str, rollout: RolloutLike) -> Hashable:
    if value is None:
        raise DataError(
            f"no group is named by {what}; set meta['request_meta']['group_id'] (or group_key) where rollouts are requested, "
            "the same for all samples of one request",
            sample=str(rollout.id),
        )
    if not isinstance(value, Hashable):
        raise DataError(f"{what} is {value!r:.100}; a group's id is text or a number", sample=str(rollout.id))
    return value


def with_rewards(rollout: RolloutLike, rewards: Mapping[int, float]) -> RolloutLike:
    """Return a rollout of the same kind that has only the steps at these places of `steps`, with these rewards."""
    steps = [_changed(rollout.steps[place], reward=reward) for place, reward in rewards.items()]
    return _changed(rollout, steps=steps)


def _changed(thing: T, **values: object) -> T:
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.replace(thing, **values)
    twin = copy.copy(thing)
    for name, value in values.items():
        setattr(twin, name, value)
    return twin
