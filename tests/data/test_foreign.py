from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from reward_loop.data import DataProto, as_data_proto, like
from reward_loop.errors import DataError


@dataclass
class Foreign:
    """Shaped like verl's DataProto."""

    batch: TensorDict | None = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)


def foreign() -> Foreign:
    return Foreign(TensorDict({"t": torch.arange(2)}, batch_size=[2]), {"c": np.array(["a", "b"], dtype=object)}, {"m": 1})


def test_ours_comes_in_and_goes_out_as_it_is() -> None:
    data, result = DataProto(meta_info={"m": 1}), DataProto()
    assert as_data_proto(data) is data
    assert like(data, result) is result


def test_another_systems_batch_is_read_without_copying() -> None:
    original = foreign()
    data = as_data_proto(original)
    assert data.batch is original.batch
    assert data.column("c") is original.non_tensor_batch["c"]
    assert data.meta_info == {"m": 1}


def test_reading_a_foreign_batch_never_writes_to_it() -> None:
    original = foreign()
    data = as_data_proto(original)
    data.non_tensor_batch["new"] = np.zeros(2)
    data.meta_info["new"] = 1
    assert (list(original.non_tensor_batch), list(original.meta_info)) == (["c"], ["m"])


def test_a_result_goes_back_as_the_type_that_came_in() -> None:
    result = DataProto.from_dict({"rm_scores": torch.zeros(2, 3)}, {"acc": [1, 0]}, {"reward_extra_keys": ["acc"]})
    back = like(foreign(), result)
    assert type(back) is Foreign
    assert back.batch is result.batch
    assert back.non_tensor_batch["acc"].tolist() == [1, 0]
    assert back.meta_info == {"reward_extra_keys": ["acc"]}


def test_what_lacks_a_field_is_no_batch() -> None:
    with pytest.raises(DataError, match="a dict is no batch: it has no batch, non_tensor_batch, meta_info"):
        as_data_proto({})


def test_a_foreign_batch_is_checked_too() -> None:
    with pytest.raises(DataError, match="'c' has 1 rows, the batch has 2"):
        as_data_proto(Foreign(foreign().batch, {"c": ["a"]}))
