"""Reading what scoring gave."""

from __future__ import annotations

from typing import Any

from reward_loop.data import DataProto


def rows(data: DataProto, name: str) -> list[Any]:
    """The values of a tensor or column, as plain Python."""
    tensor, column = data.tensor(name), data.column(name)
    found = column if tensor is None else tensor
    assert found is not None, f"{name} is neither in {data.tensor_names()} nor in {data.column_names()}"
    values: list[Any] = found.tolist()
    return values
