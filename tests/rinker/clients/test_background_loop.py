"""The end of a process whose clients have connections."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import ROOT

PROGRAM = """
import aiohttp
from reward_loop.rinker.clients.background_loop import background_loop
from reward_loop.scoring.sessions import session

async def ask():
    try:
        await (await session()).get("http://127.0.0.1:9/")
    except aiohttp.ClientConnectorError:
        print("nobody is there")

background_loop().run(ask())
"""


def test_connections_are_closed_with_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "nobody is there\n"
    assert not ended.stderr
