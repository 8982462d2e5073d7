"""An MCP server of the SDK's own kind, run as a process by tests: `python -m tests.rubrics.judges.mcp_server PORT|stdio`.

Its tools give their answers in every form that a tool may.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, TypedDict

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("judges", log_level="CRITICAL")


class Verdict(TypedDict):
    score: float
    reasoning: str


_gathered: defaultdict[str, list[asyncio.Event]] = defaultdict(list)


@server.tool()
async def judge(text: str) -> Verdict:
    """Score a text with the number that it ends with."""
    return {"score": float(text.rsplit(maxsplit=1)[-1]), "reasoning": text}


@server.tool()
async def judge_together(text: str, group: str, count: int) -> Verdict:
    """Score a text as `judge` does, once so many calls of the group are under way at the same time."""
    here = asyncio.Event()
    _gathered[group].append(here)
    if len(_gathered[group]) == count:
        for event in _gathered[group]:
            event.set()
    await here.wait()
    return await judge(text)


@server.tool()
async def judge_slowly(text: str, delay_s: float) -> Verdict:
    """Score a text as `judge` does, after a while."""
    await asyncio.sleep(delay_s)
    return await judge(text)


@server.tool()
def pid() -> float:
    """The process's id."""
    return os.getpid()


@server.tool()
async def hang(text: str) -> Verdict:
    """Never answer, and note in the file `text` that it was asked, and that it was told to stop."""
    Path(text).write_text("asked")  # noqa: ASYNC240 - a few bytes
    try:
        await asyncio.Event().wait()
    finally:
        Path(text).write_text("stopped")  # noqa: ASYNC240
    return await judge(text)


@server.tool()
def die(text: str) -> Verdict:
    """End the process without an answer."""
    os._exit(3)


@server.tool()
def bare(text: str) -> dict:  # type: ignore[type-arg]
    """An untyped mapping, which comes as text."""
    return {"score": 0.25, "text": text}


@server.tool()
def untyped(text: str):  # type: ignore[no-untyped-def]
    """No type at all."""
    return f"{text} 0.75"


@server.tool()
def number_text(text: str) -> str:
    """A number as text."""
    return "0.5"


@server.tool()
def json_text(text: str) -> str:
    """JSON as text."""
    return '{"score": 0.125}'


@server.tool()
def anything(given: dict[str, Any]) -> dict[str, Any]:
    """Give back what was given."""
    return given


@server.tool()
def fail(text: str) -> Verdict:
    """Fail with a reason."""
    raise ToolError(f"no verdict on {text}")


@server.tool()
def crash(text: str) -> Verdict:
    """Fail with a bug."""
    raise ZeroDivisionError(text)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", port=int(sys.argv[1]))
