"""Tensors in messages: both ways, by the SDK's own hand, and refused where they contradict themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.rinker.types import TensorData

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from tinker.proto import request_conv
from tinker.types import TensorData as OfficialTensor

from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.protocol import messages
from reward_loop.rinker.wire.tensors import decode_tensor, write_tensor

official_message: Any = vars(request_conv)["_tensor_data_to_proto"]


def encode_tensor(tensor: TensorData) -> messages.Tensor:
    message = messages.Tensor()
    write_tensor(message, tensor)
    return message


def decoded(message: messages.Tensor, max_bytes: int = 1 << 20) -> TensorData:
    return decode_tensor(message, "it", Allowance(max_bytes))


def dense(values: Any, dtype: str, code: int, shape: list[int] | None = None) -> messages.Tensor:
    array = np.asarray(values, dtype)
    return messages.Tensor(dense=array.tobytes(), dtype=code, shape=list(array.shape) if shape is None else shape)  # type: ignore[arg-type]


def sparse(crow: list[int], columns: list[int], values: list[float], shape: list[int]) -> messages.Tensor:
    message = messages.Tensor(dtype=messages.DTYPE_FLOAT32, shape=shape)
    message.sparse_csr.values = np.asarray(values, np.float32).tobytes()
    message.sparse_csr.crow_indices = np.asarray(crow, np.int64).tobytes()
    message.sparse_csr.col_indices = np.asarray(columns, np.int64).tobytes()
    return message


@pytest.mark.parametrize(
    "tensor",
    [
        TensorData([1.5, -2.0, float("inf"), 0.1], "float32"),
        TensorData([1, -(2**63), 2**63 - 1], "int64"),
        TensorData([[1, 2, 3], [4, 5, 6]], "int64", [2, 3]),
        TensorData([], "float32"),
        TensorData([], "float32", [0, 4]),
        TensorData.from_torch_sparse(torch.eye(20)),
        TensorData.from_torch_sparse(torch.zeros(5, 40, dtype=torch.int64)),
    ],
    ids=repr,
)
def test_a_tensor_comes_back_as_it_was_sent(tensor: TensorData) -> None:
    back = decoded(encode_tensor(tensor))
    assert back == tensor
    assert back.shape == tensor.shape
    assert back.sparse_crow_indices == tensor.sparse_crow_indices
    assert back.sparse_col_indices == tensor.sparse_col_indices


@given(st.lists(st.floats(width=32, allow_nan=False)), st.booleans())
def test_any_numbers_come_back(values: list[float], as_matrix: bool) -> None:
    shape = [1, len(values)] if as_matrix else [len(values)]
    assert decoded(encode_tensor(TensorData(values, "float32", shape))).data == values


@pytest.mark.parametrize(
    "theirs",
    [
        OfficialTensor(data=[1.0, 2.5], dtype="float32", shape=[2]),
        OfficialTensor(data=[1, 2, 3, 4], dtype="int64", shape=[2, 2]),
        OfficialTensor.from_torch_sparse(torch.eye(30)),
    ],
)
def test_what_the_sdk_sends_is_read_as_it_was_meant(theirs: Any) -> None:
    assert decoded(official_message(theirs)).tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool])
def test_a_matrix_of_any_type_keeps_only_what_is_not_zero(dtype: torch.dtype) -> None:
    tensor = TensorData.from_torch_sparse(torch.eye(20, dtype=dtype))
    assert tensor.sparse_col_indices == list(range(20))
    assert tensor == TensorData.from_torch(torch.eye(20, dtype=dtype))


def test_what_is_sent_without_a_shape_is_a_row() -> None:
    assert decoded(dense([1.0, 2.0], "<f4", messages.DTYPE_FLOAT32, [])).shape == [2]


def test_bfloat16_becomes_float32_and_int32_becomes_int64() -> None:
    halves = torch.tensor([1.0, -2.5, 3.140625], dtype=torch.bfloat16)
    message = messages.Tensor(dense=halves.view(torch.int16).numpy().tobytes(), dtype=messages.DTYPE_BFLOAT16, shape=[3])
    assert decoded(message) == TensorData([1.0, -2.5, 3.140625], "float32")
    assert decoded(dense([3, -4], "<i4", messages.DTYPE_INT32)) == TensorData([3, -4], "int64")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (dense([1.0], "<f4", 0), "unknown type 0"),
        (dense([1.0], "<f4", 99), "unknown type 99"),
        (dense([1.0, 2.0], "<f4", messages.DTYPE_FLOAT32, [3]), "2 values, which the shape"),
        (dense([1.0, 2.0], "<f4", messages.DTYPE_FLOAT32, [-2]), "a size must be from 0"),
        (dense([1.0, 2.0], "<f4", messages.DTYPE_FLOAT32, [-1, -2]), "a size must be from 0"),
        (dense([1.0], "<f4", messages.DTYPE_FLOAT32, [2**40]), "a size must be from 0"),
        (messages.Tensor(dense=b"abc", dtype=messages.DTYPE_FLOAT32, shape=[1]), "multiple of the 4"),
        (messages.Tensor(dtype=messages.DTYPE_FLOAT32, shape=[3]), "no values"),
        (sparse([0, 1, 2], [0, 1], [1, 2], [2, 2, 1]), "only a matrix"),
        (sparse([0, 1], [0, 1], [1, 2], [2, 2]), "crow_indices"),
        (sparse([0, 2, 1], [0, 1], [1, 2], [2, 2]), "crow_indices"),
        (sparse([0, 3, 2], [0, 1], [1, 2], [2, 2]), "crow_indices"),
        (sparse([1, 1, 2], [0, 1], [1, 2], [2, 2]), "crow_indices"),
        (sparse([], [], [], [0, 2]), "crow_indices"),
        (sparse([0, 1, 2], [0, 2], [1, 2], [2, 2]), "col_indices"),
        (sparse([0, 1, 2], [0, -1], [1, 2], [2, 2]), "col_indices"),
        (sparse([0, 1, 2], [0], [1, 2], [2, 2]), "col_indices"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(message: messages.Tensor, why: str) -> None:
    with pytest.raises(DataError, match=why):
        decoded(message)


def test_a_small_message_that_stands_for_a_huge_matrix_is_refused() -> None:
    bomb = sparse([0, 0], [], [], [1, 2**31 - 1])
    assert bomb.ByteSize() < 100
    with pytest.raises(DataError, match="over 1048576 bytes"):
        decoded(bomb)


def test_tensors_share_what_a_request_may_take() -> None:
    allowance = Allowance(100)
    one = encode_tensor(TensorData([1.0] * 8, "float32"))
    decode_tensor(one, "the first", allowance)
    with pytest.raises(DataError, match="the second brings the request over 100 bytes"):
        decode_tensor(one, "the second", allowance)
