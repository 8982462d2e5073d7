"""Judge servers in processes of their own, and what a judge's model answers."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.processes import ROOT

MODULE = "tests.rubrics.judges.mcp_server"
STDIO = [sys.executable, "-m", MODULE, "stdio"]
_START_S = 60


def free_port() -> int:
    """Return a port that nothing listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port: int = listening.getsockname()[1]
    return port


@contextmanager
def running(words: Sequence[str], **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a Python module as a process, which is killed at the end if it still runs."""
    process = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def mcp_server(port: int) -> Generator[subprocess.Popen[bytes]]:
    """Run the SDK's own server at a port; who connects waits until it is there."""
    with running([MODULE, str(port)]) as process:
        yield process


@contextmanager
def judge_server(config: Path, port: int = 0) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Run our judge server until it says where it listens; gives the process and that line."""
    with running(["reward_loop.rubrics.judges.server", "-c", str(config), "--port", str(port)]) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], _START_S)[0], "the judge server did not start"
        yield process, process.stdout.readline().decode()


async def until(happened: Callable[[], Any]) -> None:
    """Return once `happened()` is true."""
    async with asyncio.timeout(_START_S):
        while not happened():  # noqa: ASYNC110 - what another process does sets no event here
            await asyncio.sleep(0.01)
