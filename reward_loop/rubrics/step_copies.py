"""Copies of a step for one rubric alone, and whether the rubric has written into them.

Invariant: writing anywhere into the attributes and containers of a copy never shows in the original. Objects that lie within
these (a client, a simulator) are shared, as everywhere in this project.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from reward_loop.data.copying import private_copy
from reward_loop.rubrics.observation import Action, Observation, is_done, metadata_of

_ATOMS = (str, int, float, bool, type(None), bytes, complex)
_VALUES = (*_ATOMS, dict, list, tuple, set, np.ndarray)


def private_step(value: Any) -> Any:
    """Return an action or observation, of whatever class, with attributes and containers of its own."""
    kind = type(value)
    if kind is Observation:  # these two are most, and copied several times faster
        return Observation(value.done, value.reward, private_copy(value.metadata), value.message)
    if kind is Action:
        return Action(value.message)
    if isinstance(value, _VALUES):
        return private_copy(value)
    try:
        own = copy(value)
    except TypeError:  # it can't be copied: a generator, a module
        return value
    if own is not value:
        for name in _attributes(own):
            object.__setattr__(own, name, private_copy(getattr(own, name)))  # frozen ones too
    return own


def private_part(observation: Any, keys: frozenset[str]) -> Observation | None:
    """Return an observation that holds, of the metadata, copies of what is under these keys, and says whether it is done.

    None where all of that is numbers, text and the like, into which nobody can write.
    """
    metadata = metadata_of(observation)
    own = {key: private_copy(metadata[key]) for key in keys if key in metadata}
    if all(value is metadata[key] for key, value in own.items()):
        return None
    return Observation(is_done(observation), None, own)


def unchanged_part(observation: Any, own: Observation) -> bool:
    """Return whether what `private_part` copied still is as in the original."""
    metadata = metadata_of(observation)
    return all(value is metadata[key] or _same(metadata[key], value) for key, value in own.metadata.items())


def unchanged(original: Any, own: Any) -> bool:
    """Return whether a copy that `private_step` made still holds what the original does."""
    if original is own:
        return True
    kind = type(original)
    if kind is not type(own):
        return False
    if kind is Action:
        return _same(original.message, own.message)
    if kind is Observation:
        return _same((original.done, original.reward, original.message), (own.done, own.reward, own.message)) and _same(
            original.metadata, own.metadata
        )
    if isinstance(original, _VALUES):
        return _same(original, own)
    names = list(_attributes(original))
    return names == list(_attributes(own)) and all(_same(getattr(original, name), getattr(own, name)) for name in names)


def _attributes(value: object) -> Iterator[str]:
    yield from getattr(value, "__dict__", ())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        if one == other:
            return True
    except Exception:  # noqa: BLE001 - arrays have no truth, cycles no end, and a user's __eq__ may raise anything
        return _walked(one, other, set())
    return _walked(one, other, set())


def _walked(one: Any, other: Any, known: set[tuple[int, int]]) -> bool:
    """Compare container by container; `known` holds the pairs that are being compared already, which ends cycles."""
    if one is other or (id(one), id(other)) in known:
        return True
    if type(one) is not type(other):
        return False
    known.add((id(one), id(other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_walked(one[key], other[key], known) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_walked(a, b, known) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and _walked(one.tolist(), other.tolist(), known)
    return bool(one == other) or (one != one and other != other) if isinstance(one, (*_ATOMS, set)) else False  # NaN is NaN
