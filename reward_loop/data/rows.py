"""Which rows of the columns a view shows: normalising an index, composing two, applying one.

Invariants: `Rows` is None (all rows), a slice with 0 <= start <= stop and step >= 1, or an int64 array of rows >= 0
that nobody else can write to. `compose(outer, inner)` indexes what `outer` shows by `inner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.data.columns import Column

IndexArray: TypeAlias = npt.NDArray[np.int64]
Slice: TypeAlias = slice  # DataProto has a method of that name, which hides the built-in in its annotations
Rows: TypeAlias = slice | IndexArray | None
RowChoice: TypeAlias = Sequence[int] | Sequence[bool] | npt.NDArray[np.integer | np.bool_] | torch.Tensor


def sliced(item: slice, length: int) -> tuple[Rows, int]:
    """A caller's slice as `Rows` of a batch of `length` rows, and how many it shows."""
    start, stop, step = item.indices(length)
    if step == 1:
        stop = max(start, stop)
        return slice(start, stop, 1), stop - start
    chosen = range(start, stop, step)
    if step < 0:  # torch can't step backwards
        return np.array(chosen, dtype=np.int64), len(chosen)
    return slice(start, max(start, stop), step), len(chosen)


def picked(choice: RowChoice, length: int) -> IndexArray:
    """A caller's row numbers (negative ones count from the end) or boolean mask as `Rows`.

    Raises TypeError for other kinds of index and IndexError for rows that are not there, as sequences do.
    """
    index = np.array(choice.detach().cpu().numpy() if isinstance(choice, torch.Tensor) else choice)
    if index.ndim != 1 or (index.dtype.kind not in "iub" and index.size):
        raise TypeError(f"rows are chosen by a list of integers or a mask, not by {index.dtype} {list(index.shape)}")
    if index.dtype == np.bool_:
        if len(index) != length:
            raise IndexError(f"the mask has {len(index)} entries, the batch {length} rows")
        return np.flatnonzero(index).astype(np.int64)
    rows = index.astype(np.int64)
    rows[rows < 0] += length
    if rows.size and not 0 <= rows.min() <= rows.max() < length:
        raise IndexError(f"rows {index.min()} to {index.max()} are not all in a batch of {length}")
    return rows


def compose(outer: Rows, inner: Rows) -> Rows:
    """The rows that `inner` picks among those that `outer` shows."""
    if outer is None:
        return inner
    if inner is None:
        return outer
    if not isinstance(outer, slice):
        return outer[inner]
    if isinstance(inner, slice):
        start, step = outer.start, outer.step
        return slice(start + inner.start * step, start + inner.stop * step, step * inner.step)
    return np.asarray(outer.start + inner * outer.step)


def take_tensor(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    """These rows of a tensor: a view for a slice, a copy for an array."""
    if rows is None or isinstance(rows, slice):
        return tensor if rows is None else tensor[rows]
    return tensor.index_select(0, torch.from_numpy(rows).to(tensor.device))


def take_column(column: Column, rows: Rows) -> Column:
    """These rows of a column: a view for a slice, a copy for an array."""
    return column if rows is None else column[rows]
