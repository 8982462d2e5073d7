"""Starting peers (see `peer`) and talking to them."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from reward_loop.config import RateLimitConfig

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def peer(address: str, limits: RateLimitConfig, *command: str) -> AsyncGenerator[Process]:
    """A peer that is ready; it is killed at the end."""
    arguments = ["-m", "tests.limits.peer", address, limits.model_dump_json(), *command]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    try:
        assert await hear(process) == "ready"
        yield process
    finally:
        await kill(process)


async def begin(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"begin\n")
    await process.stdin.drain()


async def hear(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60.0):
        return (await process.stdout.readline()).decode().strip()


async def kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


def free_address() -> str:
    """An address of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
