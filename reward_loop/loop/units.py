"""Which rows of a batch are scored by one call, and how calls are dealt out to workers. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from reward_loop.data import DataProto
from reward_loop.errors import DataError
from reward_loop.managers.scorer import Unit

Rows = list[int]

TRAJECTORY_COLUMN = "trajectory_id"
_MAX_SHARD = 64


def units_of(data: DataProto, unit: Unit) -> list[Rows]:
    """Return the rows of each call, in order of their first row.

    A unit of "single" is a row, or the rows that share a `trajectory_id` (the outputs of one trajectory, of which the last is
    scored); of "group", the rows that share a `uid`; of "batch", all. A row whose cell is None belongs to no other.
    """
    if unit == "batch":
        return [list(range(len(data)))] if len(data) else []
    name = "uid" if unit == "group" else TRAJECTORY_COLUMN
    column = data.column(name)
    if column is not None:
        return _rows_by(name, column)
    if unit == "group":
        raise DataError("this reward manager scores groups: the batch needs the column 'uid', the group of each sample")
    return [[row] for row in range(len(data))]


def shards_of(units: Sequence[Rows], workers: int) -> list[list[Rows]]:
    """Deal units into shards small enough that a worker which is done early finds more to take."""
    size = max(1, min(_MAX_SHARD, -(-len(units) // (4 * workers))))
    return [list(units[start : start + size]) for start in range(0, len(units), size)]


def _rows_by(name: str, column: np.ndarray[Any, Any]) -> list[Rows]:
    rows: dict[object, Rows] = {}
    for row, key in enumerate(column):
        if not isinstance(key, Hashable):
            raise DataError(f"column {name!r} must hold numbers or text that tell rows apart; row {row} holds {key!r:.100}")
        rows.setdefault(object() if key is None else key, []).append(row)
    return list(rows.values())
