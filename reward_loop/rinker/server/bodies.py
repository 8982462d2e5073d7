"""The bodies of requests: read up to a limit, and unpacked up to a limit."""

from __future__ import annotations

import asyncio

from aiohttp import web

from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.wire.compression import ENCODING, TooLargeError, decompressed

_IN_A_THREAD_BYTES = 1 << 18
"""Larger bodies are unpacked beside the loop."""


async def read_body(request: web.Request, max_bytes: int) -> bytes:
    """Return a request's body, unpacked. Raises Refusal for one that is too large, DataError for one that is broken."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in (ENCODING, "identity"):
        raise Refusal(415, f"a body in {encoding!r:.100} can't be read; send it in zstd, or as it is")
    body = await _received(request, max_bytes)
    if encoding == "identity":
        return body
    try:
        if len(body) < _IN_A_THREAD_BYTES:
            return decompressed(body, max_bytes)
        return await asyncio.to_thread(decompressed, body, max_bytes)
    except TooLargeError as error:
        raise Refusal(413, error.message) from None


async def _received(request: web.Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = request.content_length or 0
    if size <= max_bytes:
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > max_bytes:
                break
            parts.append(part)
    if size > max_bytes:
        raise Refusal(413, f"the body has more than the {max_bytes} bytes that are allowed; send it in several parts")
    return b"".join(parts)
