"""Plain data as bytes and back: what a program and its judge exchange.

Invariants: decoding yields exact builtin types only, never calls anything of the sender's, and raises Malformed, nothing else,
for whatever bytes it is given; it takes memory in proportion to their number. Objects that are no plain data go as a number,
under which the program keeps them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

MOST_ITEMS = 100_000
"""Items that are taken from an iterator, which may have no end."""
_MOST_DEPTH = 200
_PLAIN: tuple[type, ...] = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_SEQUENCES: dict[bytes, Callable[[list[Any]], object]] = {b"l": list, b"t": tuple, b"S": set, b"Z": frozenset, b"g": iter}
_TAGS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}


class Malformed(ValueError):
    """These bytes are not plain data."""


def encode(value: object, number_of: Callable[[object], int]) -> bytes:
    """Return a value as bytes; `number_of` gives the numbers of opaque objects.

    An instance of a subclass goes as its plain base, an iterator as an iterator over its first items. Raises ValueError for
    what is nested too deeply, such as a list that holds itself.
    """
    parts: list[bytes] = []
    _encode(value, parts.append, number_of, 0)
    return b"".join(parts)


def _encode(value: object, put: Callable[[bytes], object], number_of: Callable[[object], int], depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise ValueError(f"data nested more than {_MOST_DEPTH} deep can't leave the sandbox")
    if value is None or value is True or value is False:
        put(b"N" if value is None else b"T" if value else b"F")
        return
    kind = next((plain for plain in _PLAIN if isinstance(value, plain)), None)
    if kind is dict:
        items: list[tuple[object, object]] = list(dict.items(cast("dict[object, object]", value)))
        put(b"D" + struct.pack("<I", len(items)))
        for key, item in items:
            _encode(key, put, number_of, depth + 1)
            _encode(item, put, number_of, depth + 1)
    elif kind is not None and kind in _TAGS:
        _sequence(_TAGS[kind], list(cast("Any", kind).__iter__(value)), put, number_of, depth)
    elif kind is not None:
        put(_scalar(kind, value))
    elif type(value) is range:
        put(b"r")
        for bound in (value.start, value.stop, value.step):
            _encode(bound, put, number_of, depth + 1)
    elif isinstance(value, Iterator):
        _sequence(b"g", list(islice(value, MOST_ITEMS)), put, number_of, depth)
    else:
        put(b"h" + struct.pack("<I", number_of(value)))


def _sequence(
    tag: bytes, items: list[object], put: Callable[[bytes], object], number_of: Callable[[object], int], depth: int
) -> None:
    put(tag + struct.pack("<I", len(items)))
    for item in items:
        _encode(item, put, number_of, depth + 1)


def _scalar(kind: type, value: Any) -> bytes:
    if kind is float:
        return b"d" + struct.pack("<d", value)
    if kind is complex:
        return b"c" + struct.pack("<dd", value.real, value.imag)
    if kind is int:
        number = int.__index__(value)
        data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        return b"i" + struct.pack("<I", len(data)) + data
    data = str.encode(value, "utf-8", "surrogatepass") if kind is str else bytes(value)
    return (b"s" if kind is str else b"b") + struct.pack("<I", len(data)) + data


def decode(data: bytes, object_of: Callable[[int], object]) -> Any:
    """Return the value that `encode` made these bytes of; `object_of` gives what stands for an opaque object here."""
    reader = _Reader(data, object_of)
    try:
        value = reader.value(0)
    except (struct.error, UnicodeDecodeError, TypeError, ValueError) as error:  # TypeError: unhashable in a set
        raise Malformed(str(error)) from error
    if reader.at != len(data):
        raise Malformed(f"{len(data) - reader.at} bytes too many")
    return value


class _Reader:
    def __init__(self, data: bytes, object_of: Callable[[int], object]) -> None:
        self._data, self._object_of, self.at = data, object_of, 0

    def _take(self, count: int) -> bytes:
        taken = self._data[self.at : self.at + count]
        if len(taken) < count:
            raise Malformed("they end too early")
        self.at += count
        return taken

    def _count(self) -> int:
        count: int = struct.unpack("<I", self._take(4))[0]
        if count > len(self._data) - self.at:
            raise Malformed(f"{count} items or bytes are announced, {len(self._data) - self.at} bytes are left")
        return count

    def value(self, depth: int) -> Any:
        if depth > _MOST_DEPTH + 1:
            raise Malformed("nested too deeply")
        tag = self._take(1)
        if tag in _SEQUENCES:
            return _SEQUENCES[tag]([self.value(depth + 1) for _ in range(self._count())])
        if tag == b"D":
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(self._count())}
        if tag == b"r":
            return range(self._bound(depth), self._bound(depth), self._bound(depth))
        return self._scalar(tag)

    def _bound(self, depth: int) -> int:
        bound = self.value(depth + 1)
        if type(bound) is not int:
            raise Malformed("a range has bounds that are no integers")
        return bound

    def _scalar(self, tag: bytes) -> Any:  # one line per type
        if tag in b"NTF":
            return {b"N": None, b"T": True, b"F": False}[tag]
        if tag == b"i":
            return int.from_bytes(self._take(self._count()), "little", signed=True)
        if tag == b"d":
            return struct.unpack("<d", self._take(8))[0]
        if tag == b"c":
            return complex(*struct.unpack("<dd", self._take(16)))
        if tag == b"s":
            return self._take(self._count()).decode("utf-8", "surrogatepass")
        if tag == b"b":
            return self._take(self._count())
        if tag == b"h":
            return self._object_of(struct.unpack("<I", self._take(4))[0])
        raise Malformed(f"no type has the tag {tag!r}")
