"""A tensor as it travels: its numbers, their type and its shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.errors import DataError

TensorDtype = Literal["float32", "int64"]
_NUMPY: dict[str, type[np.generic]] = {"float32": np.float32, "int64": np.int64}


class TensorData:
    """An array of float32 or int64; `sparse_*` say where its values lie where only some are given (CSR, of a matrix).

    Raises DataError for numbers that do not fit the type or the shape.
    """

    __slots__ = ("_values", "dtype", "shape", "sparse_col_indices", "sparse_crow_indices")

    def __init__(
        self,
        data: Sequence[Any] | npt.NDArray[Any],
        dtype: TensorDtype,
        shape: Sequence[int] | None = None,
        sparse_crow_indices: Sequence[int] | None = None,
        sparse_col_indices: Sequence[int] | None = None,
    ) -> None:
        if dtype not in _NUMPY:
            raise DataError(f"a tensor of dtype {dtype!r}; use float32 or int64")
        self.dtype: TensorDtype = dtype
        self.sparse_crow_indices = None if sparse_crow_indices is None else list(sparse_crow_indices)
        self.sparse_col_indices = None if sparse_col_indices is None else list(sparse_col_indices)
        try:
            values = np.asarray(data, dtype=_NUMPY[dtype])
            if self.sparse_crow_indices is None and shape is not None:
                values = values.reshape(tuple(shape))
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"no tensor of {dtype} and shape {shape}: {error}") from None
        if self.sparse_crow_indices is not None and (shape is None or self.sparse_col_indices is None):
            raise DataError("a sparse tensor needs its shape and both sparse_crow_indices and sparse_col_indices")
        self.shape = list(values.shape) if shape is None else list(shape)
        self._values = values

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> Self:
        """Take an array of any float or integer type."""
        return cls(array, "float32" if array.dtype.kind == "f" else "int64", array.shape)

    @classmethod
    def from_torch(cls, tensor: torch.Tensor) -> Self:
        """Take a tensor of any float or integer type, from any device."""
        plain = tensor.detach().cpu()
        return cls.from_numpy(_array(plain))

    @classmethod
    def from_torch_sparse(cls, tensor: torch.Tensor) -> Self:
        """Take a matrix, keeping only what is not 0 where that takes less room."""
        plain = tensor.detach().cpu()
        if plain.ndim != 2 or 2 * int(plain.count_nonzero()) + plain.shape[0] + 1 >= plain.numel():
            return cls.from_torch(plain)
        rows, columns = plain.nonzero(as_tuple=True)
        crow = [0, *torch.bincount(rows, minlength=plain.shape[0]).cumsum(0).tolist()]
        dtype: TensorDtype = "float32" if plain.is_floating_point() else "int64"
        return cls(_array(plain[rows, columns]), dtype, plain.shape, crow, columns.tolist())

    @property
    def data(self) -> list[Any]:
        """The values in row-major order; of a sparse tensor those that are given."""
        flat: list[Any] = self._values.reshape(-1).tolist()
        return flat

    @property
    def nbytes(self) -> int:
        """How much room it takes, also when it travels."""
        indices = len(self.sparse_crow_indices or ()) + len(self.sparse_col_indices or ())
        return self._values.nbytes + 8 * indices

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return the whole array."""
        if self.sparse_crow_indices is None:
            return self._values
        whole = np.zeros(self.shape, dtype=self._values.dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.sparse_crow_indices))
        whole[rows, self.sparse_col_indices] = self._values
        return whole

    def to_torch(self) -> torch.Tensor:
        """Return the whole array as a tensor of its own."""
        return torch.tensor(self.to_numpy())

    def tolist(self) -> list[Any]:
        """Return the whole array as nested lists."""
        nested: list[Any] = self.to_numpy().tolist()
        return nested

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorData) and self.dtype == other.dtype and np.array_equal(self.to_numpy(), other.to_numpy())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TensorData(dtype={self.dtype!r}, shape={self.shape})"


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    return (tensor.float() if tensor.is_floating_point() else tensor.long()).numpy()  # numpy has no bfloat16
