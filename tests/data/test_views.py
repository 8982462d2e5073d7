from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from reward_loop.data import Column, DataProto
from reward_loop.data.rows import RowChoice
from reward_loop.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
ROWS = 7
BOUND = st.none() | st.integers(-ROWS - 2, ROWS + 2)
SLICES = st.builds(slice, BOUND, BOUND, st.sampled_from([None, 1, 2, 3, -1, -2]))


def numbers(rows: int = ROWS) -> DataProto:
    return DataProto.from_dict({"t": torch.arange(rows)}, {"c": list(range(rows))}, {"m": 1})


def shown(data: DataProto) -> tuple[list[int], list[int], int]:
    tensor, column = data.tensor("t"), data.column("c")
    assert tensor is not None
    assert column is not None
    return tensor.tolist(), column.tolist(), len(data)


def read(data: DataProto, touch: str) -> None:
    """Have the data build what a user may touch before slicing again."""
    if touch == "batch":
        assert isinstance(data.batch, TensorDict)
    elif touch == "columns":
        assert data.non_tensor_batch


@given(st.lists(SLICES, max_size=4), st.sampled_from(["nothing", "batch", "columns"]))
def test_slices_of_slices_show_what_slices_of_a_list_show(slices: list[slice], touch: str) -> None:
    data, expected = numbers(), list(range(ROWS))
    for rows in slices:
        read(data, touch)
        data, expected = data[rows], expected[rows]
    assert shown(data) == (expected, expected, len(expected))
    assert data.batch is not None
    assert data.batch["t"].tolist() == data.non_tensor_batch["c"].tolist() == expected


@given(st.lists(st.integers(0, ROWS - 1)), SLICES, st.sampled_from(["nothing", "batch", "columns"]))
def test_index_lists_compose_with_slices_on_both_sides(index: list[int], rows: slice, touch: str) -> None:
    picked_then_cut = numbers()[index]
    read(picked_then_cut, touch)
    expected = index[rows]
    assert shown(picked_then_cut[rows]) == (expected, expected, len(expected))

    cut = list(range(ROWS))[rows]
    index = [row for row in index if row < len(cut)]
    expected = [cut[row] for row in index]
    assert shown(numbers()[rows][index][::-1]) == (expected[::-1], expected[::-1], len(expected))


def test_every_kind_of_index_picks_the_same_rows() -> None:
    mask = [False, True, False, False, False, False, True]
    picks: list[RowChoice] = [
        [1, -1],
        np.array([1, 6]),
        np.array([1, 6], dtype=np.uint8),
        torch.tensor([1, 6]),
        mask,
        np.array(mask),
        torch.tensor(mask),
    ]
    for pick in picks:
        assert shown(numbers()[pick]) == ([1, 6], [1, 6], 2)
    assert shown(numbers()[[]]) == ([], [], 0)
    assert shown(numbers().slice(1, 5, 2)) == ([1, 3], [1, 3], 2)


def test_a_view_keeps_the_rows_it_was_given_when_the_index_array_changes() -> None:
    index = np.array([1, 2])
    view = numbers()[index]
    index[:] = 0
    assert shown(view) == ([1, 2], [1, 2], 2)


def test_a_slice_shares_memory_with_its_source() -> None:
    data = numbers()
    source, rows = data.tensor("t"), data[2:4].tensor("t")
    assert source is not None
    assert rows is not None
    assert rows.data_ptr() == source[2:].data_ptr()
    assert np.shares_memory(data[2:4].non_tensor_batch["c"], data.non_tensor_batch["c"])


@pytest.mark.parametrize("touch", ["nothing", "batch", "columns"])
def test_a_view_keeps_its_columns_whatever_happens_to_its_source(touch: str) -> None:
    data = numbers()
    read(data, touch)
    view = data[1:3]
    assert data.batch is not None
    data.batch["t"] = torch.zeros(ROWS)
    data.batch["new"] = torch.zeros(ROWS)
    data.non_tensor_batch["c"] = np.zeros(ROWS)
    data.non_tensor_batch["d"] = np.zeros(ROWS)
    data.meta_info["m"] = 2
    data.rename("t", "renamed").pop(non_tensor_batch_keys=["c"])
    assert shown(view) == ([1, 2], [1, 2], 2)
    assert (view.tensor_names(), view.column_names(), view.meta_info) == (("t",), ("c",), {"m": 1})


def test_writing_into_the_dicts_of_a_view_does_not_show_in_its_source() -> None:
    data = numbers()
    view = data[1:3]
    assert view.batch is not None
    view.batch["new"] = torch.zeros(2)
    view.non_tensor_batch["c"] = np.array([8, 9])
    view.meta_info["m"] = 2
    assert shown(data) == (list(range(ROWS)), list(range(ROWS)), ROWS)
    assert (data.tensor_names(), data.meta_info) == (("t",), {"m": 1})


@pytest.mark.parametrize("rows", [slice(0, 3), [2, 1, 0]])
def test_later_views_see_what_was_put_into_the_fields(rows: slice | list[int]) -> None:
    data = numbers()[rows]
    data.non_tensor_batch["listed"] = cast("Column", ["a", "b", "c"])
    assert data[1:2].non_tensor_batch["listed"].tolist() == ["b"]
    assert data.batch is not None
    data.batch["new"] = torch.arange(3)
    assert data.tensor_names() == ("t", "new")
    new = data[[2]].tensor("new")
    assert new is not None
    assert new.tolist() == [2]
    column = data.column("listed")
    assert column is not None
    assert column.tolist() == ["a", "b", "c"]


def test_both_fields_can_be_replaced_by_ones_of_another_length() -> None:
    data, shorter = numbers(), numbers(2)
    data.batch = shorter.batch
    data.non_tensor_batch = shorter.non_tensor_batch
    assert shown(data[:]) == ([0, 1], [0, 1], 2)
    data.batch = None
    assert (data.tensor("t"), data.tensor_names(), len(data)) == (None, (), 2)


def test_a_column_of_a_wrong_length_is_found_at_the_next_slice() -> None:
    data = numbers()
    data.non_tensor_batch["short"] = np.array([1])
    with pytest.raises(DataError, match="'short' has 1 rows, the batch has 7"):
        data[:2]


def test_a_nested_tensordict_is_refused_at_the_next_slice() -> None:
    data = numbers()
    assert data.batch is not None
    data.batch["nested"] = data.batch.clone()
    with pytest.raises(DataError, match="'nested' is a TensorDict"):
        data[:2]


def test_names_that_are_not_there_read_as_none() -> None:
    data = numbers()
    assert (data.tensor("c"), data.column("t")) == (None, None)
    read(data, "batch")
    assert (data.tensor("c"), data.column("t")) == (None, None)


def test_columns_are_read_and_pickled_without_importing_tensordict() -> None:
    program = """
import pickle, sys, torch
from reward_loop.data import DataProto
data = DataProto.from_dict({"t": torch.arange(3)}, {"c": [1, 2, 3]})
pickle.loads(pickle.dumps(data[1:2])).tensor("t"), data[0].non_tensor_batch
sys.exit("tensordict" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
