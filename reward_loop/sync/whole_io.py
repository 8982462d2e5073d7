"""Reading and writing at a place of a file, all that was asked for: the system may do a part of it."""

from __future__ import annotations

import os


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at `offset`; raises OSError."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def read_at(file: int, data: memoryview, offset: int) -> None:
    """Fill `data` from `offset` on; raises OSError, also where the file ends before."""
    while data:
        read = os.preadv(file, [data], offset)
        if read == 0:
            raise OSError(f"it ends after {offset} bytes")
        data, offset = data[read:], offset + read
