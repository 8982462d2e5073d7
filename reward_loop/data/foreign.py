"""Batches of other systems: taken in and given back by their attributes, never by their class.

Invariant: nothing is copied but the dict of columns.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from reward_loop.data.proto import DataProto
from reward_loop.errors import DataError

T = TypeVar("T")

_FIELDS = ("batch", "non_tensor_batch", "meta_info")


def as_data_proto(data: object) -> DataProto:
    """`data` itself if it is ours, else ours over the same columns; DataError if it lacks one of the three fields."""
    if isinstance(data, DataProto):
        return data
    missing = [field for field in _FIELDS if not hasattr(data, field)]
    if missing:
        raise DataError(
            f"a {type(data).__name__} is no batch: it has no {', '.join(missing)}; build one with DataProto.from_dict"
        )
    return DataProto(**{field: getattr(data, field) for field in _FIELDS})


def like(original: T, result: DataProto) -> T:
    """`result` as the type of `original`, the batch that came in."""
    if isinstance(original, DataProto):
        return cast("T", result)
    kind = cast("Any", type(original))
    return cast("T", kind(**{field: getattr(result, field) for field in _FIELDS}))
