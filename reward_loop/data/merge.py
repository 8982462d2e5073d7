"""Choosing and uniting columns by name. Invariant: two values of one name are never mixed silently; they are the same
value or a DataError that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from reward_loop.errors import DataError

V = TypeVar("V")
A = TypeVar("A", torch.Tensor, np.ndarray[Any, Any])


def chosen(kind: str, columns: Mapping[str, V], names: Sequence[str] | None) -> dict[str, V]:
    """The columns of these names, all of them for None; DataError names what is not there."""
    if names is None:
        return dict(columns)
    if missing := [name for name in names if name not in columns]:
        raise DataError(f"no {kind} {missing}; there are {sorted(columns)}")
    return {name: columns[name] for name in names}


def check_equal(kind: str, left: Mapping[str, object], right: Mapping[str, object]) -> None:
    """Raise DataError if a name that both have holds different values."""
    for name in left.keys() & right.keys():
        if not same(left[name], right[name]):
            raise DataError(
                f"{kind} {name!r} differs between the batches ({left[name]!r:.80} and {right[name]!r:.80}); "
                "rename or drop one of the two"
            )


def joined(kind: str, batches: Sequence[Mapping[str, A]], join: Callable[[list[A]], A]) -> dict[str, A]:
    """The columns of all batches, each one after the other; DataError if their names or row shapes differ."""
    for number, columns in enumerate(batches):
        if differing := sorted(columns.keys() ^ batches[0].keys()):
            raise DataError(f"{kind} {differing} is not in both batch 0 and batch {number}; concat needs the same columns")
    return {name: _joined_column(name, [columns[name] for columns in batches], join) for name in batches[0]}


def _joined_column(name: str, parts: list[A], join: Callable[[list[A]], A]) -> A:
    if len({tuple(part.shape[1:]) for part in parts}) > 1:
        shapes = [list(part.shape) for part in parts]
        raise DataError(f"column {name!r} has the shapes {shapes}; pad the rows of all batches to one shape")
    return join(parts)


def merged_meta(metas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All meta_info in one dict; `metrics`, which differ from worker to worker, as one dict of lists."""
    merged: dict[str, Any] = {}
    metrics: list[Mapping[str, object]] = []
    for meta in metas:
        others = dict(meta)
        found = others.pop("metrics", None) or []
        metrics += found if isinstance(found, list) else [found]
        check_equal("meta_info", merged, others)
        merged.update(others)
    if metrics:
        names = dict.fromkeys(name for entry in metrics for name in entry)
        merged["metrics"] = {name: [entry[name] for entry in metrics if name in entry] for name in names}
    return merged


def same(left: object, right: object) -> bool:
    """Whether two values are equal all the way down, arrays and tensors included; NaN equals NaN outside tensors."""
    if left is right:
        return True
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and left.device == right.device and torch.equal(left, right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.shape == right.shape and all(map(same, left.ravel().tolist(), right.ravel().tolist()))
    if isinstance(left, torch.Tensor | np.ndarray) or isinstance(right, torch.Tensor | np.ndarray):
        return False  # comparing one with anything else gives an array
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) or (left != left and right != right)
