"""Length-prefixed frames on a stream, which is all that passes between a grader process and its pool."""

from __future__ import annotations

from collections.abc import Iterator

from reward_loop.errors import DataError

_LARGEST = 1 << 28
_PREFIX = 4


def framed(payload: bytes) -> bytes:
    """Return the payload with its length before it; DataError for one of more than 256 MiB."""
    if len(payload) > _LARGEST:
        raise DataError(f"{len(payload)} bytes are too many for one sample or result in a grader process ({_LARGEST} at most)")
    return len(payload).to_bytes(_PREFIX, "big") + payload


class Frames:
    """Puts the pieces that a stream delivers together again."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the payloads that are complete with this piece; DataError for a length that no frame has."""
        self._buffer += piece
        start = 0
        while len(self._buffer) - start >= _PREFIX:
            length = int.from_bytes(self._buffer[start : start + _PREFIX], "big")
            if length > _LARGEST:
                raise DataError(f"a frame of {length} bytes: something else than a grader wrote on its channel")
            end = start + _PREFIX + length
            if end > len(self._buffer):
                break
            yield bytes(self._buffer[start + _PREFIX : end])
            start = end
        del self._buffer[:start]
