"""How much memory what one request brings may take once it is unpacked."""

from __future__ import annotations

from reward_loop.errors import DataError


class Allowance:
    """Bytes that may still be taken; a sparse tensor of a few bytes can stand for terabytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes

    def take(self, wanted_bytes: int, what: str) -> None:
        """Take some; DataError where that is more than there is."""
        if wanted_bytes > self._left:
            raise DataError(f"{what} brings the request over {self._max_bytes} bytes in memory; send it in several parts")
        self._left -= wanted_bytes
