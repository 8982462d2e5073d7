"""Memory that the C library keeps or gives back, where it is glibc."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Generator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""Parameters of mallopt(3)."""
_LARGEST_INT = 2**31 - 1
_MMAP_MAX = 65536
_MMAP_THRESHOLD = 32 << 20
"""Bytes: where glibc's own adjustment, which ends with the first call of mallopt, would have stopped."""


def give_back() -> None:
    """Free what only cycles hold, and return freed memory to the operating system."""
    gc.collect()
    trim()


def trim() -> None:
    """Return freed memory to the operating system: glibc keeps what is below the top of its heap."""
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is not None:
        function(0)


@contextmanager
def blocks_reused() -> Generator[None]:
    """Let large blocks that are freed in the block serve again, and give all of them back at its end.

    Each would else be fetched from the operating system, page by page and filled with zeros, and returned at once: for weights
    that are packed layer by layer that is half of the time.
    """
    options = getattr(ctypes.CDLL(None), "mallopt", None)
    if options is not None:
        options(_M_MMAP_MAX, 0)
        options(_M_TRIM_THRESHOLD, _LARGEST_INT)
    try:
        yield
    finally:
        if options is not None:
            options(_M_MMAP_MAX, _MMAP_MAX)
            options(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD)
            options(_M_TRIM_THRESHOLD, 2 * _MMAP_THRESHOLD)
        trim()
