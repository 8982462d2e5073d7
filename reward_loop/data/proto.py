"""`DataProto`: a batch of samples with verl's surface, whose slices cost a microsecond and copy nothing until touched.

An instance is a snapshot of columns (two plain dicts, shared between views and never written to) and the rows of them
that it shows. `batch` and `non_tensor_batch` are built from these when first asked for and are the truth from then on.

Invariants: a view keeps the columns that its source had when it was taken; adding, dropping or replacing columns in one
never shows in the other. What the columns hold is shared, as in verl. Reading `batch` reads `non_tensor_batch` too, so
once `_objects` is set the snapshot of columns is spent, and once `_batch_is_read` that of tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from reward_loop.data.columns import (
    Column,
    aligned,
    check_tensor,
    column_of,
    columns_of,
    packed,
    tensors_in,
    tensors_of,
    unpacked,
)
from reward_loop.data.item import DataProtoItem
from reward_loop.data.merge import check_equal, chosen, joined, merged_meta
from reward_loop.data.rows import RowChoice, Rows, Slice, compose, picked, sliced, take_column, take_tensor
from reward_loop.errors import DataError

if TYPE_CHECKING:
    from tensordict import TensorDict


class DataProto:
    """Tensors, object columns and `meta_info` of the same samples; see the module for what is shared and when.

    Raises DataError where the columns do not have the same number of rows.
    """

    __slots__ = ("_batch", "_batch_is_read", "_columns", "_index", "_length", "_objects", "_tensors", "meta_info")

    _tensors: dict[str, torch.Tensor] | None
    _columns: dict[str, Column]
    _index: Rows
    _length: int
    _batch: TensorDict | None
    _batch_is_read: bool
    _objects: dict[str, Column] | None
    meta_info: dict[str, Any]

    def __init__(
        self,
        batch: TensorDict | None = None,
        non_tensor_batch: Mapping[str, object] | None = None,
        meta_info: Mapping[str, Any] | None = None,
    ) -> None:
        self._reset(None, {}, None, 0, meta_info)
        self.non_tensor_batch = columns_of(non_tensor_batch)
        self.batch = batch
        self._snapshot()

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, torch.Tensor] | None = None,
        non_tensors: Mapping[str, object] | None = None,
        meta_info: Mapping[str, Any] | None = None,
        num_batch_dims: int = 1,
    ) -> DataProto:
        """A batch of these columns; lists among the non-tensors become object arrays of their items."""
        if num_batch_dims != 1:
            raise DataError(f"num_batch_dims={num_batch_dims}: a batch has one dimension; flatten the others into it")
        checked = tensors_of(tensors) if tensors else None
        columns = columns_of(non_tensors)
        length = next(map(len, (checked or columns).values()), 0)
        data = cls.__new__(cls)
        data._reset(checked, aligned(columns, length), None, length, meta_info)
        return data

    @classmethod
    def from_single_dict(cls, data: Mapping[str, object], meta_info: Mapping[str, Any] | None = None) -> DataProto:
        """A batch of columns in one dict: tensors are told from the rest by their type."""
        tensors = {name: value for name, value in data.items() if isinstance(value, torch.Tensor)}
        others = {name: value for name, value in data.items() if name not in tensors}
        return cls.from_dict(tensors, others, meta_info)

    def _reset(
        self,
        tensors: dict[str, torch.Tensor] | None,
        columns: dict[str, Column],
        index: Rows,
        length: int,
        meta_info: Mapping[str, Any] | None,
    ) -> None:
        """Become an untouched view of `length` rows, chosen by `index`, of these columns."""
        self._tensors = tensors
        self._columns = columns
        self._index = index
        self._length = length
        self._batch = None
        self._batch_is_read = False
        self._objects = None
        self.meta_info = dict(meta_info) if meta_info else {}

    # -- the three fields ------------------------------------------------------------------------------------------

    @property
    def batch(self) -> TensorDict | None:
        """The tensors as a TensorDict, or None if there never were any."""
        if not self._batch_is_read:
            _ = self.non_tensor_batch
            if self._tensors is not None:
                # Imported here: it takes as long as torch itself, and scoring reads columns without it.
                from tensordict import TensorDict

                self._batch = TensorDict(self._taken_tensors(), batch_size=[self._length])
            self._batch_is_read = True
        return self._batch

    @batch.setter
    def batch(self, batch: TensorDict | None) -> None:
        if batch is not None:
            from tensordict import TensorDictBase

            if not isinstance(batch, TensorDictBase):
                raise DataError(f"batch is a {type(batch).__name__}, no TensorDict; build it with DataProto.from_dict")
            if batch.batch_dims != 1:
                raise DataError(f"batch has batch_size {list(batch.batch_size)}; it must be [number of rows]")
        _ = self.non_tensor_batch
        self._batch = batch
        self._batch_is_read = True

    @property
    def non_tensor_batch(self) -> dict[str, Column]:
        """The other columns by name."""
        if self._objects is None:
            self._objects = {name: take_column(column, self._index) for name, column in self._columns.items()}
        return self._objects

    @non_tensor_batch.setter
    def non_tensor_batch(self, columns: Mapping[str, object]) -> None:
        self._objects = columns_of(columns)

    # -- columns without a TensorDict ------------------------------------------------------------------------------

    def tensor(self, name: str) -> torch.Tensor | None:
        """One tensor column, or None if there is none of that name; never builds `batch`."""
        if not self._batch_is_read:
            tensor = None if self._tensors is None else self._tensors.get(name)
            return None if tensor is None else take_tensor(tensor, self._index)
        if self._batch is None or name not in self._batch.keys():  # noqa: SIM118 - a TensorDict refuses `in`
            return None
        return check_tensor(name, self._batch[name])

    def column(self, name: str) -> Column | None:
        """One non-tensor column, or None if there is none of that name; never builds `non_tensor_batch`."""
        if self._objects is None:
            column = self._columns.get(name)
            return None if column is None else take_column(column, self._index)
        column = self._objects.get(name)
        return None if column is None else column_of(name, column)

    def tensor_names(self) -> tuple[str, ...]:
        """The names of the tensor columns."""
        if self._batch_is_read:
            return () if self._batch is None else tuple(map(str, self._batch.keys()))
        return tuple(self._tensors or ())

    def column_names(self) -> tuple[str, ...]:
        """The names of the non-tensor columns."""
        return tuple(self._columns if self._objects is None else self._objects)

    def _taken_tensors(self) -> dict[str, torch.Tensor]:
        return {name: take_tensor(tensor, self._index) for name, tensor in (self._tensors or {}).items()}

    def _snapshot(self) -> tuple[dict[str, torch.Tensor] | None, dict[str, Column], Rows]:
        """The columns as they are now, checked, and which rows of them this batch is."""
        if self._objects is None:
            return self._tensors, self._columns, self._index
        if self._batch_is_read:
            tensors = None if self._batch is None else tensors_in(self._batch)
        else:
            if self._tensors is not None:
                self._tensors = self._taken_tensors()
            self._index = None
            tensors = self._tensors
        return tensors, aligned(self._objects, len(self)), None

    def _rows(self) -> tuple[dict[str, torch.Tensor] | None, dict[str, Column]]:
        """The columns, checked, with this batch's rows only."""
        tensors, columns, index = self._snapshot()
        if tensors is not None:
            tensors = {name: take_tensor(tensor, index) for name, tensor in tensors.items()}
        return tensors, {name: take_column(column, index) for name, column in columns.items()}

    # -- rows ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if self._batch_is_read:
            if self._batch is not None:
                return int(self._batch.batch_size[0])
        elif self._tensors is not None:
            return self._length
        if self._objects is None:
            return self._length
        return next(map(len, self._objects.values()), 0)

    @overload
    def __getitem__(self, item: int | np.integer) -> DataProtoItem: ...
    @overload
    def __getitem__(self, item: Slice | RowChoice) -> DataProto: ...
    def __getitem__(self, item: int | np.integer | Slice | RowChoice) -> DataProtoItem | DataProto:
        if isinstance(item, slice):
            return self._view(*sliced(item, len(self)))
        if isinstance(item, int | np.integer):
            return self._item(int(item))
        if isinstance(item, list | np.ndarray | torch.Tensor):
            return self.select_idxs(item)
        raise TypeError(f"a batch is indexed by integers, slices, lists, arrays or tensors, not by {type(item)}")

    def __iter__(self) -> Iterator[DataProtoItem]:
        return map(self._item, range(len(self)))

    def _item(self, row: int) -> DataProtoItem:
        length = len(self)
        if not -length <= row < length:
            raise IndexError(f"row {row} of a batch of {length}")
        row %= length
        return DataProtoItem(self._view(slice(row, row + 1, 1), 1))

    def _view(self, rows: Rows, length: int) -> DataProto:
        tensors, columns, index = self._snapshot()
        view = DataProto.__new__(DataProto)
        view._reset(tensors, columns, compose(index, rows), length, self.meta_info)
        return view

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> DataProto:
        """The same as `self[start:end:step]`."""
        return self[start:end:step]

    def select_idxs(self, idxs: RowChoice) -> DataProto:
        """The rows at these numbers, in that order, or those where a mask is true."""
        index = picked(idxs, len(self))
        return self._view(index, len(index))

    def chunk(self, chunks: int) -> list[DataProto]:
        """As many equal parts, in order; DataError if the rows do not divide evenly."""
        if chunks < 1 or len(self) % chunks:
            raise DataError(f"{len(self)} rows can't be cut into {chunks} equal chunks; use split(split_size)")
        size = len(self) // chunks
        return [self[start * size : (start + 1) * size] for start in range(chunks)]

    def split(self, split_size: int) -> list[DataProto]:
        """Parts of `split_size` rows, in order, the last perhaps shorter."""
        if split_size < 1:
            raise DataError(f"split_size={split_size}; it must be at least 1")
        return [self[start : start + split_size] for start in range(0, len(self), split_size)]

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> DataProto:
        """Every row `repeat_times` times: a a b b if interleaved, else a b a b."""
        if repeat_times < 0:
            raise DataError(f"repeat_times={repeat_times}; it can't be negative")
        rows = np.arange(len(self), dtype=np.int64)
        index = np.repeat(rows, repeat_times) if interleave else np.tile(rows, repeat_times)
        return self._view(index, len(index))

    def reorder(self, indices: RowChoice) -> None:
        """Put the rows into this order, in place."""
        view = self.select_idxs(indices)
        self._reset(*view._snapshot(), len(view), self.meta_info)

    # -- columns ---------------------------------------------------------------------------------------------------

    def select(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
        deepcopy: bool = False,
    ) -> DataProto:
        """All rows of these columns; None means every column of that kind. DataError names what is not there."""
        tensors, columns, index = self._snapshot()
        if tensors is not None or batch_keys:
            tensors = chosen("tensor", tensors or {}, batch_keys)
        selected = DataProto.__new__(DataProto)
        columns = chosen("non-tensor column", columns, non_tensor_batch_keys)
        selected._reset(tensors, columns, index, len(self), chosen("meta_info", self.meta_info, meta_info_keys))
        return copy.deepcopy(selected) if deepcopy else selected

    def pop(
        self,
        batch_keys: Sequence[str] | None = None,
        non_tensor_batch_keys: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
    ) -> DataProto:
        """Remove these columns, in place, and return them; None removes none of that kind."""
        batch = self.batch  # read, so that what a caller holds of it loses the columns as well
        removed = self.select(batch_keys or (), non_tensor_batch_keys or (), meta_info_keys or ())
        tensors, columns = removed._rows()
        if batch is not None:
            for name in tensors or ():
                del batch[name]
        for name in columns:
            del self.non_tensor_batch[name]
        for name in removed.meta_info:
            del self.meta_info[name]
        return DataProto.from_dict(tensors, columns, removed.meta_info)

    def rename(self, old_keys: str | Sequence[str], new_keys: str | Sequence[str]) -> DataProto:
        """Rename tensors, in place, and return this batch."""
        old = [old_keys] if isinstance(old_keys, str) else list(old_keys)
        new = [new_keys] if isinstance(new_keys, str) else list(new_keys)
        taken = set(new) & (set(self.tensor_names()) - set(old))
        if len(old) != len(new) or len(set(new)) != len(new) or taken:
            raise DataError(f"can't rename {old} to {new}: give each tensor one name that no other has")
        moved = self.pop(batch_keys=old)
        if self.batch is not None:
            self.batch.update({after: moved.tensor(before) for before, after in zip(old, new, strict=True)})
        return self

    def to(self, device: torch.device | str | int) -> DataProto:
        """Move the tensors to a device, in place, and return this batch."""
        if self.batch is not None:
            self.batch = self.batch.to(device)
        return self

    # -- several batches -------------------------------------------------------------------------------------------

    def union(self, other: DataProto) -> DataProto:
        """Add the columns and meta_info of `other`, in place, and return this batch.

        Raises DataError if the rows differ in number or a name that both have holds different values.
        """
        theirs, columns = other._rows()
        mine, my_columns = self._rows()
        if (theirs or columns) and (mine or my_columns) and len(other) != len(self):
            raise DataError(f"can't unite batches of {len(self)} and {len(other)} rows")
        for kind, left, right in (
            ("tensor", mine or {}, theirs or {}),
            ("non-tensor column", my_columns, columns),
            ("meta_info", self.meta_info, other.meta_info),
        ):
            check_equal(kind, left, right)
        if self.batch is None:
            self.batch = DataProto.from_dict(theirs).batch
        else:
            self.batch.update(theirs or {})
        self.non_tensor_batch.update(columns)
        self.meta_info.update(other.meta_info)
        return self

    @staticmethod
    def concat(data: Sequence[DataProto]) -> DataProto:
        """The rows of all batches, in order.

        All must have the same columns; meta_info is united, `metrics` becomes one dict of lists, and a key that two
        batches give different values to is a DataError.
        """
        if not data:
            raise DataError("concat needs at least one batch")
        parts = [part._rows() for part in data]
        tensors = joined("tensor", [tensors or {} for tensors, _ in parts], torch.cat)
        columns = joined("non-tensor column", [columns for _, columns in parts], np.concatenate)
        return DataProto.from_dict(tensors, columns, merged_meta([part.meta_info for part in data]))

    # -- this object -----------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Callable[..., DataProto], tuple[object, ...]]:
        tensors, columns = self._rows()
        sent = None if tensors is None else {name: packed(tensor) for name, tensor in tensors.items()}
        return DataProto._restored, (sent, columns, len(self), self.meta_info)

    @staticmethod
    def _restored(
        sent: dict[str, Column | torch.Tensor] | None,
        columns: dict[str, Column],
        length: int,
        meta_info: dict[str, Any],
    ) -> DataProto:
        """What `__reduce__` took apart."""
        data = DataProto.__new__(DataProto)
        tensors = None if sent is None else {name: unpacked(value) for name, value in sent.items()}
        data._reset(tensors, columns, None, length, meta_info)
        return data

    def __repr__(self) -> str:
        fields = f"batch={list(self.tensor_names())}, non_tensor_batch={list(self.column_names())}"
        return f"DataProto({len(self)} rows, {fields}, meta_info={list(self.meta_info)})"
