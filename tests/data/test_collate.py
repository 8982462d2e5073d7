from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from reward_loop.data import collate_columns
from reward_loop.errors import DataError


def test_columns_are_the_union_of_all_keys_in_the_order_first_seen() -> None:
    columns = collate_columns([{"acc": 1}, {"timeout": True, "acc": 0}, {}])
    assert {name: column.tolist() for name, column in columns.items()} == {
        "acc": [1, 0, None],
        "timeout": [None, True, None],
    }
    assert list(columns) == ["acc", "timeout"]


def test_values_stay_what_they_are_whatever_their_shape() -> None:
    values: list[object] = [[1, 2], [3, 4], np.zeros((2, 2)), np.array(5), (), "text"]
    column = collate_columns([{"x": value} for value in values])["x"]
    assert column.shape == (6,)
    assert column.dtype == object
    assert all(kept is value for kept, value in zip(column, values, strict=True))


def test_no_infos_make_no_columns() -> None:
    assert collate_columns([]) == {}


def test_a_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(DataError, match="column name 3 is a int"):
        collate_columns([cast("Mapping[str, object]", {3: "x"})])
