"""Columns of a batch: what may be one, how it is checked and sent to another process.

Invariants: a tensor column is a torch tensor, a non-tensor column a numpy array, and both have one entry per row along
their first axis. numpy never guesses a shape from lists: a list of B lists is a column of B lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.errors import DataError

if TYPE_CHECKING:
    from tensordict import TensorDict

Column: TypeAlias = npt.NDArray[Any]
"""A non-tensor column: one entry per row; made from a list it has dtype object."""

_NUMPY_DTYPES = frozenset(
    {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64} | {torch.float16, torch.float32, torch.float64}
)


def object_array(values: Iterable[object], length: int) -> Column:
    """A 1-D object array of exactly these `length` values, whatever they are."""
    return np.fromiter(values, dtype=object, count=length)


def column_of(name: str, values: object) -> Column:
    """`values` as a column: arrays as they are, lists and tuples as object arrays; DataError for anything else."""
    check_name(name)
    if isinstance(values, np.ndarray):
        if values.ndim == 0:
            raise DataError(f"non-tensor column {name!r} is a 0-d array ({values!r}); it needs one entry per row")
        return values
    if isinstance(values, list | tuple):
        return object_array(values, len(values))
    remedy = "pass it among the tensors" if isinstance(values, torch.Tensor) else "pass a list or array of one per row"
    raise DataError(f"non-tensor column {name!r} is a {type(values).__name__}; {remedy}")


def columns_of(mapping: object) -> dict[str, Column]:
    """A new dict of columns; DataError if it is no mapping or a value is no column."""
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise DataError(f"the non-tensor columns must be a mapping of name to array, not a {type(mapping).__name__}")
    return {name: column_of(name, values) for name, values in mapping.items()}


def aligned(columns: Mapping[str, Column], length: int) -> dict[str, Column]:
    """A snapshot of the columns; DataError names the first that has not `length` rows."""
    snapshot = dict(columns)
    for name, column in columns.items():
        # A caller may have put a list into the dict by hand.
        array = column if type(column) is np.ndarray else column_of(name, column)
        if len(array) != length:
            raise DataError(f"column {name!r} has {len(array)} rows, the batch has {length}; give every row one entry")
        snapshot[name] = array
    return snapshot


def tensors_of(mapping: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """A new dict of tensor columns of one length; DataError otherwise."""
    tensors: dict[str, torch.Tensor] = {}
    length: int | None = None
    for name, tensor in mapping.items():
        check_name(name)
        tensor = check_tensor(name, tensor)
        if tensor.dim() == 0:
            raise DataError(f"tensor {name!r} has no batch dimension (its shape is []); give it one entry per row")
        length = len(tensor) if length is None else length
        if len(tensor) != length:
            raise DataError(
                f"tensor {name!r} has {len(tensor)} rows (shape {list(tensor.shape)}), the ones before it {length}; "
                "the first dimension of every tensor is the batch"
            )
        tensors[name] = tensor
    return tensors


def tensors_in(batch: TensorDict) -> dict[str, torch.Tensor]:
    """A snapshot of a TensorDict's columns; DataError if one of them is no plain tensor."""
    return {name: check_tensor(name, tensor) for name, tensor in batch.items()}


def check_tensor(name: str, value: object) -> torch.Tensor:
    """`value`, which must be a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    raise DataError(
        f"tensor column {name!r} is a {type(value).__name__}; convert it with torch.as_tensor or pass it among the non-tensors"
    )


def check_name(name: object) -> None:
    """Raise DataError unless a column's name is text."""
    if not isinstance(name, str):
        raise DataError(f"column name {name!r} is a {type(name).__name__}; names are str")


def packed(tensor: torch.Tensor) -> Column | torch.Tensor:
    """What to pickle for a tensor: an array over its memory where numpy knows the dtype, else a compact tensor.

    A numpy array goes out of band in pickle protocol 5 and holds its own rows only; torch would write the whole storage
    that a view looks at, hence the clone. Gradients do not travel.
    """
    tensor = tensor.detach()
    if tensor.dtype in _NUMPY_DTYPES and tensor.device.type == "cpu":
        return np.ascontiguousarray(tensor.numpy())
    return tensor.clone(memory_format=torch.contiguous_format)


def unpacked(value: Column | torch.Tensor) -> torch.Tensor:
    """The tensor that `packed` took apart, in memory that may be written."""
    if isinstance(value, torch.Tensor):
        return value
    # Ray hands out read-only arrays over its shared store. torch has no read-only tensors, so a tensor over one would
    # let an in-place operation here change the object for every other reader.
    return torch.from_numpy(value if value.flags.writeable else value.copy())
