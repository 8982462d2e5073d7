"""Bodies that are refused before all of them has come."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from tests.rinker.recording_backend import RecordingBackend

LENGTH = 3 << 20


@contextlib.asynccontextmanager
async def posting() -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve bodies of 1 MiB at the most, and give a connection on which the head of a larger one was sent."""
    async with serving(RecordingBackend(), ServerSettings(port=0, max_body_mb=1)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = ["POST /api/v1/telemetry HTTP/1.1", f"Host: {host}", "X-API-Key: tml-test", f"Content-Length: {LENGTH}", "", ""]
        writer.write("\r\n".join(lines).encode())
        yield reader, writer
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_client_that_sends_all_before_it_looks_is_told_why() -> None:
    async with posting() as (reader, writer):
        writer.write(b"x" * LENGTH)
        await writer.drain()
        assert b" 413 " in await reader.readline()


async def test_a_client_that_sends_nothing_more_does_not_hold_up_the_servers_end() -> None:
    now = asyncio.get_running_loop().time
    async with posting() as (reader, _):
        assert b" 413 " in await reader.readline()
        refused = now()
    assert now() - refused < 3
