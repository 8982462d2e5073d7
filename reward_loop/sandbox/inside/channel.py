"""The line between a program and its judge: frames of plain data, each with its length in front.

Invariants: a frame has a bounded size in both directions; whoever reads can tell silence, the other's end and nonsense apart.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress

MOST_BYTES = 8 << 20
"""Size of one frame: decoded, it takes at most some 100 times as much."""


class Gone(Exception):  # an event, and expected
    """The other side has ended or hung up."""


class Channel:
    """One end of the line."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def send(self, frame: bytes) -> None:
        """Send one frame; raises ValueError for one that is too large, and Gone."""
        if len(frame) > MOST_BYTES:
            raise ValueError(f"{len(frame)} bytes of data can't leave the sandbox at once; the most is {MOST_BYTES}")
        try:
            self._socket.sendall(struct.pack("<I", len(frame)) + frame)
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self) -> bytes:
        """Wait for the next frame; raises ValueError where one too large is announced, and Gone."""
        size: int = struct.unpack("<I", self._exactly(4))[0]
        if size > MOST_BYTES:
            raise ValueError(f"a frame of {size} bytes is announced; the most is {MOST_BYTES}")
        return self._exactly(size)

    def is_silent(self) -> bool:
        """Say whether nothing has come that was not received yet."""
        with suppress(OSError):
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return True

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                chunk = self._socket.recv(min(count - len(data), 1 << 20))
            except OSError as error:
                raise Gone(str(error)) from error
            if not chunk:
                raise Gone("it hung up")
            data += chunk
        return bytes(data)
