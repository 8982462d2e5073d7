"""Reads the rest of a large body straight into its place: past the parser, which has said how long the body is, and uncopied.

Invariant: not a byte beyond the body is read; whatever else happens to the connection is the owner's business.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

LARGE_BYTES = 1 << 15
"""What must be left of a body for this to pay."""


class Owner(Protocol):
    """Whose body it is."""

    def body_read(self, rest: bytearray) -> None:
        """Take what was left of the body."""

    def body_goes_on(self) -> None:
        """Note that something has come."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""

    def pause_writing(self) -> None:
        """The client takes no more for now."""

    def resume_writing(self) -> None:
        """It does again."""


class BodyReader(asyncio.BufferedProtocol):
    """A connection's protocol until `size` bytes have come."""

    def __init__(self, owner: Owner, size: int) -> None:
        self._owner = owner
        self._rest = bytearray(size)
        self._free = memoryview(self._rest)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes belong."""
        return self._free

    def buffer_updated(self, nbytes: int) -> None:
        """Count what has come."""
        self._free = self._free[nbytes:]
        self._owner.body_goes_on()
        if not self._free:
            self._owner.body_read(self._rest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the owner."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Tell the owner."""
        self._owner.resume_writing()
