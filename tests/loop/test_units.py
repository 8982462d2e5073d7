from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.loop.units import shards_of, units_of
from tests.fakes import text_batch

IDS = st.lists(st.sampled_from(["a", "b", 1, None]), max_size=40)


def test_without_further_columns_every_row_is_a_unit() -> None:
    assert units_of(text_batch(["x"] * 3), "single") == [[0], [1], [2]]


def test_the_outputs_of_one_trajectory_are_one_unit_in_order_of_their_first_row() -> None:
    data = text_batch(["x"] * 5, trajectory_id=["t", "u", "t", "v", "u"])
    assert units_of(data, "single") == [[0, 2], [1, 4], [3]]


def test_a_group_is_the_rows_of_one_uid() -> None:
    assert units_of(text_batch(["x"] * 4, uid=[7, 8, 7, 8]), "group") == [[0, 2], [1, 3]]


def test_a_batch_is_all_rows_and_an_empty_one_is_no_unit() -> None:
    assert units_of(text_batch(["x"] * 3), "batch") == [[0, 1, 2]]
    assert units_of(text_batch([]), "batch") == []


def test_a_row_without_an_id_belongs_to_no_other() -> None:
    data = text_batch(["x"] * 4, trajectory_id=["t", None, "t", None])
    assert units_of(data, "single") == [[0, 2], [1], [3]]


def test_groups_without_a_uid_column_are_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match="'uid'"):
        units_of(text_batch(["x"]), "group")


def test_an_id_that_is_no_id_is_an_error_that_names_column_and_row() -> None:
    with pytest.raises(DataError, match=r"'uid' .* row 1 holds \[1\]"):
        units_of(text_batch(["x"] * 2, uid=["a", [1]]), "group")


@given(IDS)
def test_units_hold_every_row_once(ids: list[object]) -> None:
    data = text_batch(["x"] * len(ids), trajectory_id=ids, uid=ids)
    for unit in ("single", "group", "batch"):
        units = units_of(data, unit)
        assert sorted(row for rows in units for row in rows) == list(range(len(ids)))
        assert [rows[0] for rows in units] == sorted(rows[0] for rows in units)


@given(st.integers(0, 1000), st.integers(1, 16))
def test_shards_hold_every_unit_once_in_order_and_leave_something_to_steal(units: int, workers: int) -> None:
    dealt = shards_of([[row] for row in range(units)], workers)
    assert [row for shard in dealt for unit in shard for row in unit] == list(range(units))
    assert max(map(len, dealt), default=0) <= 64
    if units >= 4 * workers:
        assert len(dealt) >= 2 * workers
