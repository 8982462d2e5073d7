"""Requests that wait until a replica has room: first in, first out, and never more than a bound. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Waiter = TypeVar("Waiter", bound=Hashable)


class WaitingLines(Generic[Key, Waiter]):
    """One line per key (a pool, or a replica where none other would do); `limit` counts all lines together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: dict[Key, OrderedDict[Waiter, None]] = {}
        self._where: dict[Waiter, Key] = {}

    def __len__(self) -> int:
        return len(self._where)

    def __iter__(self) -> Iterator[Key]:
        """Give the keys whose lines are not empty."""
        return iter(tuple(self._lines))

    def join(self, key: Key, waiter: Waiter) -> bool:
        """Put a waiter at the end of a line; False if there are too many already."""
        if len(self._where) >= self._limit:
            return False
        self._lines.setdefault(key, OrderedDict())[waiter] = None
        self._where[waiter] = key
        return True

    def leave(self, waiter: Waiter) -> bool:
        """Take a waiter out, wherever it stands; False if it stands nowhere."""
        if waiter not in self._where:
            return False
        key = self._where.pop(waiter)
        line = self._lines[key]
        del line[waiter]
        if not line:
            del self._lines[key]
        return True

    def first(self, key: Key) -> Waiter | None:
        """Return who is next in a line; None if nobody waits there."""
        line = self._lines.get(key)
        return next(iter(line)) if line else None

    def length(self, key: Key) -> int:
        """Return how many wait in a line."""
        return len(self._lines.get(key, ()))
