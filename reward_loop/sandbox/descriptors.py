"""Reading descriptors of programs on an event loop: never more than is asked for, never longer than they live.

Invariants: what a program writes takes bounded memory here, however much it is; a reader that is closed watches its descriptor no
more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 65_536
_PATIENCE = 16


class Parcel:
    """Descriptors on their way to another process; closed here when they have been sent, or with the context."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, number: int) -> None:
        """Put one more in; it belongs to the parcel from now on."""
        self.numbers.append(number)

    def close(self) -> None:
        """Close our copies: a pipe or socket ends only when nobody has it open any more."""
        while self.numbers:
            os.close(self.numbers.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Reader:
    """Reads a descriptor, which it owns, as data comes; a context manager that closes it."""

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._descriptor: int | None = descriptor
        self._take = take
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self.poll)

    def poll(self) -> bool:
        """Take one chunk if there is one; say whether there was."""
        if self._descriptor is None:
            return False
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.close()
        self._take(chunk)
        return bool(chunk)

    def close(self) -> None:
        """Stop reading; whoever writes gets a broken pipe."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Output:
    """What a program printed: the first `most` bytes, and the last few.

    What is beyond is thrown away, so that a program that prints a little too much comes to its end; one that never ends printing
    finds its pipe broken.
    """

    def __init__(self, descriptor: int, most: int) -> None:
        self._most, self._seen = most, 0
        self.kept = bytearray()
        self.tail = b""
        self.reader = Reader(descriptor, self._take)

    @property
    def truncated(self) -> bool:
        """Whether something was thrown away."""
        return self._seen > self._most

    def _take(self, chunk: bytes) -> None:
        self._seen += len(chunk)
        self.kept += chunk[: self._most - len(self.kept)]
        self.tail = (self.tail + chunk)[-256:]
        if self._seen > _PATIENCE * self._most:
            self.reader.close()

    def finish(self) -> bytes:
        """Take what is still in the pipe, close it and return what was kept."""
        while self.reader.poll():
            pass
        self.reader.close()
        return bytes(self.kept)


class Lines:
    """The lines that come in on a descriptor, one at a time; None at their end."""

    def __init__(self, descriptor: int) -> None:
        self._partial = b""
        self._lines: list[bytes] = []
        self._ended = False
        self._news = asyncio.Event()
        self.reader = Reader(descriptor, self._take)

    def _take(self, chunk: bytes) -> None:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        self._lines += lines
        self._ended = not chunk
        self._news.set()

    async def next(self, timeout_s: float) -> bytes | None:
        """Return the next line; raises TimeoutError where none has been written for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._lines and not self._ended:
                    self._news.clear()
                    await self._news.wait()
        while not self._lines and self.reader.poll():  # it may be there, where it is this process that is late
            pass
        if self._lines:
            return self._lines.pop(0)
        if self._ended:
            return None
        raise TimeoutError
