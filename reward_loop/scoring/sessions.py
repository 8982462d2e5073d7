"""One HTTP session per event loop, so that requests of one loop share connections.

Invariant: a session is closed by its own loop when that shuts down its asynchronous generators, as `asyncio.run` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp

_sessions: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[aiohttp.ClientSession], aiohttp.ClientSession]] = {}


async def session() -> aiohttp.ClientSession:
    """Return the running loop's session."""
    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        for other in [other for other in _sessions if other.is_closed()]:
            _sessions.pop(other, None)
        opening = _open(loop)
        _sessions[loop] = opening, await anext(opening)  # opening it never suspends: no other task comes between
    return _sessions[loop][1]


async def _open(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[aiohttp.ClientSession]:
    # Each request brings its own deadline, and who calls limits how many there are. uvicorn (and so vLLM) hangs up after 5 idle
    # seconds: a request that is sent at that moment would fail.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as opened:
        try:
            yield opened
        finally:
            _sessions.pop(loop, None)
