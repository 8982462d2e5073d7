"""Copies of a step, and whether they were written into."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest

from reward_loop.rubrics import Action, Observation
from reward_loop.rubrics.step_copies import private_step, unchanged


class Theirs(pydantic.BaseModel):
    """An observation as OpenEnv's."""

    model_config = pydantic.ConfigDict(extra="forbid")
    done: bool = False
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Frozen:
    """One that can't be written to, but what it holds can."""

    metadata: dict[str, Any] = field(default_factory=dict[str, Any])


class Pair(NamedTuple):
    metadata: dict[str, Any]


class Slotted:
    __slots__ = ("metadata", "never_set")

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata


STEPS = [Observation, Theirs, Frozen, Pair, Slotted, SimpleNamespace]


@pytest.mark.parametrize("kind", STEPS)
def test_what_an_object_holds_is_copied(kind: Any) -> None:
    step = kind(metadata={"history": [1, {"deep": [2]}]})
    own = private_step(step)
    assert type(own) is kind
    assert unchanged(step, own)
    own.metadata["history"][1]["deep"].append(3)
    assert step.metadata == {"history": [1, {"deep": [2]}]}
    assert not unchanged(step, own)


@pytest.mark.parametrize("step", ["text", 1, None, {"metadata": [1]}, [1, 2], Action("text"), object(), iter([1])])
def test_anything_may_be_a_step(step: Any) -> None:
    assert unchanged(step, private_step(step))


def test_objects_within_are_shared() -> None:
    client = object()
    own = private_step(Observation(metadata={"client": client}))
    assert own.metadata["client"] is client


class Moody:
    """Can't be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("compare nothing")

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    "metadata",
    [
        {"nan": float("nan")},
        {"array": np.array([1.0, np.nan]), "text": ["a"]},
        {"objects": np.array([{"a": 1}, "b"], dtype=object)},
        {"moody": Moody(), "more": np.zeros(3)},
        {"nested": [{"array": np.arange(4)}, {1, 2}, (1, [2])]},
    ],
)
def test_what_is_hard_to_compare_is_compared(metadata: dict[str, Any]) -> None:
    step = Observation(metadata=metadata)
    assert unchanged(step, private_step(step))


def test_writing_into_an_array_is_seen() -> None:
    step = Observation(metadata={"array": np.zeros(3)})
    own = private_step(step)
    own.metadata["array"][1] = 1
    assert step.metadata["array"].tolist() == [0, 0, 0]
    assert not unchanged(step, own)


def test_cycles_are_copied_and_compared() -> None:
    metadata: dict[str, Any] = {"n": [1]}
    metadata["self"] = metadata
    step = Observation(metadata=metadata)
    own = private_step(step)
    assert unchanged(step, own)
    own.metadata["self"]["n"].append(2)
    assert metadata["n"] == [1]
    assert not unchanged(step, own)


@pytest.mark.parametrize(
    "write",
    [
        lambda own: own.metadata.update(new=1),
        lambda own: own.metadata.pop("a"),
        lambda own: own.metadata.update(a=[2]),
        lambda own: own.metadata.update(a=(1,)),
        lambda own: setattr(own, "done", True),
        lambda own: setattr(own, "extra", 1),
        lambda own: delattr(own, "done"),
    ],
)
def test_every_way_of_writing_is_seen(write: Any) -> None:
    step = SimpleNamespace(done=False, metadata={"a": [1]})
    own = private_step(step)
    write(own)
    assert not unchanged(step, own)
