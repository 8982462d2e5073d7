"""A private copy of what a user's function may write into: containers are copied, what they hold is shared.

Invariant: writing anywhere into the copy's dicts, lists, tuples, sets and arrays never shows in the original. Two
places that hold one container hold one copy of it, so cycles are kept too. Anything else (numbers, text, tensors,
objects) is the same object in both.
"""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar, cast

import numpy as np

T = TypeVar("T")

_ATOMS = frozenset({str, int, float, bool, type(None), bytes, complex})


def private_copy(value: T) -> T:
    """The same value in containers of its own; see the module for what is copied."""
    if type(value) in _ATOMS:
        return value
    held: Any = value
    flat = type(held) is dict and _ATOMS.issuperset(map(type, held.values()))
    return cast("T", held.copy() if flat else _copied(held, {}))  # flat ones are most, and copied several times faster


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """`memo` maps the id of a container to its copy."""
    if type(value) in _ATOMS or not isinstance(value, dict | list | tuple | set | np.ndarray):
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    if isinstance(value, tuple):
        return _copied_tuple(value, memo)
    # The copy is known before its contents are, which is what ends a cycle.
    clone = memo[id(value)] = copy(value)
    if isinstance(clone, dict):
        for key, held in clone.items():
            if type(held) not in _ATOMS:
                clone[key] = _copied(held, memo)
    elif isinstance(clone, list):
        clone[:] = [_copied(held, memo) for held in clone]
    elif isinstance(clone, np.ndarray) and clone.dtype == object:
        for place in np.ndindex(clone.shape):
            clone[place] = _copied(clone[place], memo)
    return clone


def _copied_tuple(value: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    held = [_copied(item, memo) for item in value]
    if all(new is old for new, old in zip(held, value, strict=True)):
        return value
    make = getattr(type(value), "_make", type(value))  # named tuples take their fields one by one
    return cast("tuple[Any, ...]", memo.setdefault(id(value), make(held)))
