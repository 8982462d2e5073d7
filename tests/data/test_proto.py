from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from reward_loop.data import DataProto
from reward_loop.errors import DataError


def batch_of(rows: int = 4) -> DataProto:
    return DataProto.from_dict(
        tensors={"responses": torch.arange(rows * 3).reshape(rows, 3), "mask": torch.ones(rows, dtype=torch.bool)},
        non_tensors={"uid": [f"u{row}" for row in range(rows)], "extra_info": [{"row": row} for row in range(rows)]},
        meta_info={"step": 7},
    )


def uids(data: DataProto) -> list[str]:
    column = data.column("uid")
    assert column is not None
    return list(column)


def first_tokens(data: DataProto) -> list[int]:
    responses = data.tensor("responses")
    assert responses is not None
    return [int(token) // 3 for token in responses[:, 0]]


def test_the_three_fields_hold_what_was_given() -> None:
    data = batch_of()
    assert data.batch is not None
    assert data.batch.batch_size == (4,)
    assert data.batch["responses"].shape == (4, 3)
    assert data.non_tensor_batch["uid"].dtype == object
    assert data.meta_info == {"step": 7}
    assert len(data) == 4


def test_lists_of_equal_length_stay_a_column_of_lists() -> None:
    column = DataProto.from_dict(non_tensors={"x": [[1, 2], [3, 4]]}).non_tensor_batch["x"]
    assert column.shape == (2,)
    assert column[1] == [3, 4]


def test_a_single_dict_is_parted_by_type() -> None:
    data = DataProto.from_single_dict({"ids": torch.zeros(2, 1), "names": ["a", "b"], "ages": np.array([1, 2])})
    assert data.tensor_names() == ("ids",)
    assert data.column_names() == ("names", "ages")


def test_the_constructor_keeps_a_tensordict_as_it_is() -> None:
    batch = TensorDict({"x": torch.zeros(2)}, batch_size=[2])
    assert DataProto(batch).batch is batch


def test_an_empty_batch_has_no_rows_and_no_tensors() -> None:
    data = DataProto()
    assert (len(data), data.batch, data.non_tensor_batch, data.meta_info) == (0, None, {}, {})
    assert list(data) == []


@pytest.mark.parametrize(
    ("tensors", "non_tensors", "message"),
    [
        ({"x": torch.zeros(2), "y": torch.zeros(3)}, {}, r"'y' has 3 rows .* the ones before it 2"),
        ({"x": torch.zeros(2)}, {"y": ["a"]}, r"'y' has 1 rows, the batch has 2"),
        ({}, {"x": ["a", "b"], "y": ["a"]}, r"'y' has 1 rows, the batch has 2"),
        ({"x": torch.tensor(1)}, {}, "no batch dimension"),
        ({"x": [1, 2]}, {}, "is a list; convert it"),
        ({}, {"x": "text"}, "is a str; pass a list"),
        ({}, {"x": torch.zeros(2)}, "pass it among the tensors"),
        ({}, {"x": np.array(3)}, "0-d array"),
        ({}, {1: ["a"]}, "column name 1 is a int"),
        ({}, [("x", [1])], "must be a mapping"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tensors: Any, non_tensors: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataProto.from_dict(tensors, non_tensors)


def test_a_batch_of_another_form_is_refused() -> None:
    with pytest.raises(DataError, match="is a dict, no TensorDict"):
        DataProto(cast("Any", {"x": torch.zeros(2)}))
    with pytest.raises(DataError, match=r"batch_size \[2, 3\]"):
        DataProto(TensorDict({"x": torch.zeros(2, 3)}, batch_size=[2, 3]))
    with pytest.raises(DataError, match="num_batch_dims=2"):
        DataProto.from_dict({"x": torch.zeros(2, 3)}, num_batch_dims=2)


def test_an_item_is_one_row_without_the_batch_dimension() -> None:
    item = batch_of()[-1]
    assert item.batch is not None
    assert item.batch["responses"].tolist() == [9, 10, 11]
    assert item.non_tensor_batch == {"uid": "u3", "extra_info": {"row": 3}}
    assert item.meta_info == {"step": 7}
    assert DataProto.from_dict(non_tensors={"x": [1]})[0].batch is None


def test_iteration_gives_every_item_in_order() -> None:
    assert [item.non_tensor_batch["uid"] for item in batch_of()] == ["u0", "u1", "u2", "u3"]


def test_rows_that_are_not_there_raise_index_error() -> None:
    data = batch_of()
    for item in (4, -5, [0, 4], [-5], np.array([True])):
        with pytest.raises(IndexError):
            data[item]


def test_indices_of_another_kind_raise_type_error() -> None:
    data = batch_of()
    for item in ("uid", 1.0, [0.5], [[0]]):
        with pytest.raises(TypeError):
            data[cast("list[int]", item)]


def test_chunk_cuts_evenly_or_refuses() -> None:
    assert [uids(part) for part in batch_of().chunk(2)] == [["u0", "u1"], ["u2", "u3"]]
    for chunks in (3, 0):
        with pytest.raises(DataError, match="equal chunks"):
            batch_of().chunk(chunks)


def test_split_leaves_a_shorter_rest() -> None:
    assert [uids(part) for part in batch_of().split(3)] == [["u0", "u1", "u2"], ["u3"]]
    with pytest.raises(DataError, match="at least 1"):
        batch_of().split(0)


def test_repeat_interleaves_or_tiles() -> None:
    assert uids(batch_of(2).repeat(2)) == ["u0", "u0", "u1", "u1"]
    tiled = batch_of(2).repeat(repeat_times=2, interleave=False)
    assert uids(tiled) == ["u0", "u1", "u0", "u1"]
    assert first_tokens(tiled) == [0, 1, 0, 1]
    with pytest.raises(DataError, match="negative"):
        batch_of().repeat(-1)


def test_reorder_works_in_place() -> None:
    data = batch_of()
    before = data.batch
    data.reorder(torch.tensor([3, 0, 1, 2]))
    assert uids(data) == ["u3", "u0", "u1", "u2"]
    assert first_tokens(data) == [3, 0, 1, 2]
    assert data.batch is not before


def test_select_keeps_the_named_columns_and_all_of_what_is_not_named() -> None:
    selected = batch_of().select(batch_keys=["mask"], meta_info_keys=[])
    assert (selected.tensor_names(), selected.column_names()) == (("mask",), ("uid", "extra_info"))
    assert selected.meta_info == {}
    with pytest.raises(DataError, match=r"no tensor \['nope'\]; there are \['mask', 'responses'\]"):
        batch_of().select(batch_keys=["nope"])


def test_a_deep_selection_shares_nothing() -> None:
    data = batch_of()
    deep, shallow = data.select(deepcopy=True), data.select()
    data.non_tensor_batch["extra_info"][0]["row"] = "new"
    responses = data.tensor("responses")
    assert responses is not None
    responses[0] = 300
    assert (deep.non_tensor_batch["extra_info"][0]["row"], first_tokens(deep)[0]) == (0, 0)
    assert (shallow.non_tensor_batch["extra_info"][0]["row"], first_tokens(shallow)[0]) == ("new", 100)


def test_pop_returns_what_it_removes() -> None:
    data = batch_of()
    batch = data.batch
    removed = data.pop(["responses"], ["uid"], ["step"])
    assert (removed.tensor_names(), removed.column_names(), removed.meta_info) == (
        ("responses",),
        ("uid",),
        {"step": 7},
    )
    assert (data.tensor_names(), data.column_names(), data.meta_info) == (("mask",), ("extra_info",), {})
    assert data.batch is batch
    assert first_tokens(removed) == [0, 1, 2, 3]
    assert len(data) == 4


def test_a_refused_pop_removes_nothing() -> None:
    data = batch_of()
    with pytest.raises(DataError, match="no non-tensor column"):
        data.pop(["mask"], ["nope"])
    assert data.tensor_names() == ("responses", "mask")


def test_rename_renames_tensors_in_place_even_when_they_swap() -> None:
    data = batch_of()
    assert data.rename(["responses", "mask"], ["mask", "responses"]) is data
    mask = data.tensor("mask")
    assert mask is not None
    assert mask.shape == (4, 3)
    assert data.rename("mask", "tokens").tensor("mask") is None
    for new in ("responses", ["a", "b"]):
        with pytest.raises(DataError, match="one name that no other has"):
            data.rename("tokens", new)


def test_to_moves_the_tensors() -> None:
    data = batch_of()
    assert data.to("meta") is data
    responses = data.tensor("responses")
    assert responses is not None
    assert responses.device.type == "meta"


def test_union_adds_columns_in_place() -> None:
    data, other = batch_of(), DataProto.from_dict({"new": torch.zeros(4)}, {"kind": ["x"] * 4}, {"step": 7, "more": 1})
    assert data.union(other) is data
    assert data.tensor_names() == ("responses", "mask", "new")
    assert data.column_names() == ("uid", "extra_info", "kind")
    assert data.meta_info == {"step": 7, "more": 1}


def test_union_with_a_batch_without_tensors_and_the_other_way_round() -> None:
    texts, tensors = DataProto.from_dict(non_tensors={"x": [1, 2]}), DataProto.from_dict({"y": torch.zeros(2)})
    assert texts[:].union(tensors).tensor_names() == ("y",)
    assert tensors[:].union(texts).column_names() == ("x",)
    assert len(DataProto().union(texts)) == 2


def test_union_accepts_equal_columns_and_refuses_different_ones() -> None:
    nested = [{"a": np.array([1.0, np.nan]), "b": [torch.ones(2), None, float("nan")]} for _ in range(2)]
    copies = [{"a": np.array([1.0, np.nan]), "b": [torch.ones(2), None, float("nan")]} for _ in range(2)]
    data = DataProto.from_dict({"t": torch.zeros(2)}, {"x": nested}, {"m": 1})
    data.union(DataProto.from_dict({"t": torch.zeros(2)}, {"x": copies}))
    for other, kind in (
        (DataProto.from_dict({"t": torch.ones(2)}), "tensor 't'"),
        (DataProto.from_dict(non_tensors={"x": [1, np.array([2])]}), "non-tensor column 'x'"),
        (DataProto(meta_info={"m": 2}), "meta_info 'm'"),
    ):
        with pytest.raises(DataError, match=f"{kind} differs"):
            data.union(other)
    with pytest.raises(DataError, match="2 and 3 rows"):
        data.union(DataProto.from_dict({"u": torch.zeros(3)}))


def test_concat_puts_rows_one_after_the_other() -> None:
    data = DataProto.concat([batch_of(2), batch_of(3)[1:]])
    assert uids(data) == ["u0", "u1", "u1", "u2"]
    assert first_tokens(data) == [0, 1, 1, 2]
    assert data.meta_info == {"step": 7}


def test_concat_gathers_metrics_into_lists() -> None:
    parts = [DataProto(meta_info={"metrics": {"loss": 1}}), DataProto(meta_info={"metrics": [{"loss": 2, "kl": 3}]})]
    assert DataProto.concat(parts).meta_info == {"metrics": {"loss": [1, 2], "kl": [3]}}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one"),
        (
            [DataProto.from_dict({"x": torch.zeros(1)}), DataProto.from_dict({"y": torch.zeros(1)})],
            r"tensor \['x', 'y'\] is not in both",
        ),
        (
            [DataProto.from_dict({"x": torch.zeros(1, 2)}), DataProto.from_dict({"x": torch.zeros(1, 3)})],
            "pad the rows",
        ),
        ([DataProto(meta_info={"step": 1}), DataProto(meta_info={"step": 2})], "meta_info 'step' differs"),
    ],
)
def test_batches_that_do_not_fit_are_not_joined(parts: list[DataProto], message: str) -> None:
    with pytest.raises(DataError, match=message):
        DataProto.concat(parts)


def test_repr_names_columns_and_not_their_contents() -> None:
    assert repr(batch_of()) == (
        "DataProto(4 rows, batch=['responses', 'mask'], non_tensor_batch=['uid', 'extra_info'], meta_info=['step'])"
    )
