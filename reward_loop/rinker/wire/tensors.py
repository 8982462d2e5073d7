"""Tensors as messages: dense, or sparse matrices in compressed rows (CSR).

Invariants: a tensor that was decoded can be unpacked: its bytes, its shape and its indices fit each other; bfloat16 becomes
float32 and int32 becomes int64, for there are no others on this side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reward_loop.errors import DataError
from reward_loop.rinker.types import TensorData
from reward_loop.rinker.types.tensor_data import TensorDtype
from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.protocol import messages

# Little-endian, as the SDK's own machines write it, whatever this one is.
_NUMPY: dict[int, np.dtype[np.generic]] = {
    messages.DTYPE_FLOAT32: np.dtype("<f4"),
    messages.DTYPE_INT64: np.dtype("<i8"),
    messages.DTYPE_INT32: np.dtype("<i4"),
    messages.DTYPE_BFLOAT16: np.dtype("<u2"),
}
_OURS: dict[int, TensorDtype] = {
    messages.DTYPE_FLOAT32: "float32",
    messages.DTYPE_BFLOAT16: "float32",
    messages.DTYPE_INT64: "int64",
    messages.DTYPE_INT32: "int64",
}
_HERE = {code: np.dtype(dtype) for code, dtype in _OURS.items()}
DTYPES: dict[TensorDtype, messages.DType.ValueType] = {"float32": messages.DTYPE_FLOAT32, "int64": messages.DTYPE_INT64}
_BFLOAT16 = messages.DTYPE_BFLOAT16
_INT64 = np.dtype("<i8")
_LARGEST = np.iinfo(np.int32).max


def item_bytes(dtype: int, what: str) -> int:
    """Return the size of a number of a message's type; DataError for a type that is not known."""
    if dtype not in _NUMPY:
        raise DataError(f"{what} is of the unknown type {dtype}; send float32, bfloat16, int64 or int32")
    return _NUMPY[dtype].itemsize


def numbers(raw: bytes, dtype: int, what: str) -> npt.NDArray[Any]:
    """Return the numbers in some bytes, as float32 or int64."""
    size = item_bytes(dtype, what)
    if len(raw) % size:
        raise DataError(f"{what} has {len(raw)} bytes, which is no multiple of the {size} that a number of its type takes")
    values = np.frombuffer(raw, _NUMPY[dtype])
    if dtype == _BFLOAT16:
        # The upper half of a float32.
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(_HERE[dtype], copy=False)


def numbers_of(values: npt.NDArray[Any], dtype: TensorDtype) -> bytes:
    """Return an array of float32 or int64 as bytes."""
    return values.astype(_NUMPY[DTYPES[dtype]], copy=False).tobytes()


def dtype_of(dtype: int) -> TensorDtype:
    """Return what a message's type is called here."""
    return _OURS[dtype]


def write_tensor(message: messages.Tensor, tensor: TensorData) -> None:
    """Write a tensor to an empty message."""
    message.dtype = DTYPES[tensor.dtype]
    message.shape.extend(tensor.shape)
    if tensor.sparse_crow_indices is None or tensor.sparse_col_indices is None:
        message.dense = numbers_of(tensor.to_numpy(), tensor.dtype)
        return
    message.sparse_csr.values = numbers_of(np.asarray(tensor.data), tensor.dtype)
    message.sparse_csr.crow_indices = np.asarray(tensor.sparse_crow_indices, _INT64).tobytes()
    message.sparse_csr.col_indices = np.asarray(tensor.sparse_col_indices, _INT64).tobytes()


def decode_tensor(message: messages.Tensor, what: str, allowance: Allowance) -> TensorData:
    """Return a message as a tensor. Raises DataError for one that contradicts itself, or is larger than allowed."""
    shape = message.shape[:]
    # The common case apart: there are hundreds of short vectors in one call.
    count = shape[0] if len(shape) == 1 else math.prod(shape)
    if shape and (min(shape) < 0 or max(shape) > _LARGEST):
        raise DataError(f"{what} has the shape {shape}: a size must be from 0 to {_LARGEST}")
    allowance.take(8 * count, what)
    encoding = message.WhichOneof("encoding")
    if encoding == "sparse_csr":
        return _decode_sparse(message, shape, what)
    if encoding is None and count != 0:
        raise DataError(f"{what} has the shape {shape} and no values")
    dtype = message.dtype
    values = numbers(message.dense, dtype, what)
    if shape and values.size != count:
        raise DataError(f"{what} has {values.size} values, which the shape {shape} does not hold")
    return TensorData(values, _OURS[dtype], shape if len(shape) > 1 else None)


def _decode_sparse(message: messages.Tensor, shape: Sequence[int], what: str) -> TensorData:
    parts = message.sparse_csr
    values = numbers(parts.values, message.dtype, what)
    crow = numbers(parts.crow_indices, messages.DTYPE_INT64, f"crow_indices of {what}")
    columns = numbers(parts.col_indices, messages.DTYPE_INT64, f"col_indices of {what}")
    check_sparse(shape, values.size, crow, columns, what)
    return TensorData(values, dtype_of(message.dtype), shape, crow.tolist(), columns.tolist())


def check_sparse(shape: Sequence[int], count: int, crow: npt.NDArray[Any], columns: npt.NDArray[Any], what: str) -> None:
    """Raise DataError where the parts of a sparse matrix of `count` values do not fit each other."""
    if len(shape) != 2:
        raise DataError(f"{what} is sparse and of the shape {list(shape)}; only a matrix can be")
    steps = np.diff(crow)
    if crow.size != shape[0] + 1 or crow[0] != 0 or crow[-1] != count or (steps < 0).any():
        raise DataError(f"{what}: crow_indices must rise from 0 to its {count} values in {shape[0]} steps, one per row")
    if columns.size != count or (count and (columns.min() < 0 or columns.max() >= shape[1])):
        raise DataError(f"{what}: col_indices must name a column below {shape[1]} for each of its {count} values")
