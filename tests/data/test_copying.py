from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.data import private_copy


class Point(NamedTuple):
    x: list[int]
    y: int


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda held: st.lists(held) | st.dictionaries(st.text(), held) | st.tuples(held) | st.sets(st.integers()),
    max_leaves=20,
)


def mutables(value: Any) -> set[int]:
    """The ids of all containers in a value that can be written to."""
    found = {id(value)} if isinstance(value, dict | list | set) else set[int]()
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return found.union(*map(mutables, held))


@given(VALUES)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    copied = private_copy(value)
    assert copied == value
    assert not mutables(copied) & mutables(value)


def test_arrays_are_copied_with_what_they_hold() -> None:
    value = {"numbers": np.zeros(2), "objects": np.array([{"a": [1]}, None], dtype=object)}
    copied = private_copy(value)
    copied["numbers"][0] = 1
    copied["objects"][0]["a"].append(2)
    assert value["numbers"][0] == 0
    assert value["objects"][0] == {"a": [1]}


def test_kinds_of_containers_are_kept() -> None:
    counts: defaultdict[str, list[int]] = defaultdict(list, a=[1])
    copied = private_copy((OrderedDict(b=[1]), counts, Point([1], 2)))
    assert [type(part) for part in copied] == [OrderedDict, defaultdict, Point]
    assert copied[1]["missing"] == []
    assert copied[2] == Point([1], 2)
    assert "missing" not in counts


def test_other_objects_are_shared() -> None:
    tensor, frozen = torch.zeros(1), frozenset({1})
    copied = private_copy({"tensor": tensor, "frozen": frozen, "tuple": (1, 2)})
    assert copied["tensor"] is tensor
    assert copied["frozen"] is frozen


def test_two_places_with_one_list_still_have_one_list() -> None:
    shared: list[int] = []
    copied = private_copy({"a": shared, "b": shared})
    copied["a"].append(1)
    assert copied == {"a": [1], "b": [1]}
    assert shared == []


def test_a_cycle_is_copied_as_a_cycle() -> None:
    value: dict[str, Any] = {"pair": ()}
    value["self"], value["pair"] = value, (value,)
    copied = private_copy(value)
    assert copied["self"] is copied is not value
    assert copied["pair"][0] is copied
