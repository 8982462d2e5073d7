"""Several results in one answer, each as it comes: a line of JSON that says what follows, then that many bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from reward_loop.errors import DataError
from reward_loop.rinker.wire.body import Body, Name, Number

FRAMES = "application/x-rinker-frames"
"""The content type."""


class FrameHead(Body):
    """Says of one result which it is (counted from 0), what promised it, its content type, and how many bytes follow."""

    index: Number
    request_id: Name
    content_type: Name
    size: Number


class Stream(Protocol):
    """What frames are read from: aiohttp's StreamReader and asyncio's."""

    async def readline(self) -> bytes:
        """Return the bytes up to the end of the line; none at the end."""
        ...

    async def readexactly(self, n: int) -> bytes:
        """Return so many bytes. Raises EOFError where there are not as many."""
        ...


def frame(head: FrameHead, body: bytes) -> bytes:
    """Return one result as bytes; `head.size` is the size of `body`."""
    return b"%s\n%s" % (head.model_dump_json().encode(), body)


async def read_frames(stream: Stream, max_bytes: int) -> AsyncGenerator[tuple[FrameHead, bytes]]:
    """Read results up to the end. Raises DataError for what is no frame or too large, and what the stream raises."""
    while line := await stream.readline():
        head = FrameHead.read(line)
        if head.size > max_bytes:
            raise DataError(f"a result of {head.size} bytes is announced; at most {max_bytes} are read")
        yield head, await stream.readexactly(head.size)
