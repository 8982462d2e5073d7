"""A judge server: puts the services of a YAML file behind MCP tools, one tool per service.

    python -m reward_loop.rubrics.judges.server -c services.yaml --port 8080      # streamable HTTP at /mcp
    python -m reward_loop.rubrics.judges.server -c services.yaml --stdio          # as a child process of its client

By HTTP it prints {"host", "port", "pid"} in one line once it can be asked. Invariants: an answer is structured content of the
form that the tool declares, with what it cost as `usage`; a failure is the tool's own error, with its reason and its cost; it
listens on loopback unless told otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import mcp_types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server

from reward_loop.errors import RewardLoopError
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import usage_recorded

_DRAIN_S = 5


def judge_server(services: JudgeServices) -> Server[Any]:
    """Return the MCP server of services that are open."""

    async def list_tools(*_: object) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=_tools(services))

    async def call_tool(_: object, call: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        with usage_recorded() as ledger:
            try:
                answer, failed = await services.call_tool(call.name, **(call.arguments or {})), False
            except RewardLoopError as error:
                answer, failed = {"error": str(error)}, True
        answer |= {"usage": asdict(ledger.total)}
        text = answer["error"] if failed else json.dumps(answer, default=str)
        content: list[mcp_types.ContentBlock] = [mcp_types.TextContent(type="text", text=text)]
        return mcp_types.CallToolResult(content=content, structured_content=answer, is_error=failed)

    return Server("reward-loop-judges", on_list_tools=list_tools, on_call_tool=call_tool)


def _tools(services: JudgeServices) -> list[mcp_types.Tool]:
    return [
        mcp_types.Tool(
            name=name,
            description=tool.description,
            input_schema={
                "type": "object",
                "properties": {argument: {} for argument in sorted(tool.takes or ())},
                "required": sorted(tool.needs),
                "additionalProperties": tool.takes is None,
            },
            output_schema=_FORMS[kind],
        )
        for name, tool, kind in services.offered()
    ]


_FORMS: dict[str, dict[str, Any]] = {
    "score": {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]},
    "text": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "object": {"type": "object"},
}


async def serve(services: JudgeServices, host: str, port: int) -> None:
    """Serve by streamable HTTP until told to stop."""
    listening = socket.create_server((host, port))
    app = judge_server(services).streamable_http_app(host=host, stateless_http=True, json_response=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_DRAIN_S)
    server = uvicorn.Server(config)
    where = {"host": host, "port": listening.getsockname()[1], "pid": os.getpid()}
    print(json.dumps(where), flush=True)  # noqa: T201 - who started it waits for this
    await server.serve(sockets=[listening])


async def serve_stdio(services: JudgeServices) -> None:
    """Serve on standard input and output until that ends."""
    server = judge_server(services)
    async with stdio_server() as (requests, replies):
        await server.run(requests, replies, server.create_initialization_options())


async def run(arguments: argparse.Namespace) -> None:
    """Open the services of the file, and serve them."""
    async with JudgeServices(arguments.config, router_address=arguments.router) as services:
        if arguments.stdio:
            await serve_stdio(services)
        else:
            await serve(services, arguments.host, arguments.port)


def main(words: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit code is 0, or 1 where it could not start."""
    parser = argparse.ArgumentParser(prog="python -m reward_loop.rubrics.judges.server", description="Serve judges by MCP.")
    parser.add_argument("-c", "--config", required=True, help="YAML file with mcp_services")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0: any free one")
    parser.add_argument("--stdio", action="store_true", help="serve on standard input and output instead")
    parser.add_argument("--router", default=None, help="host:port of a reward router, for services without an endpoint")
    try:
        asyncio.run(run(parser.parse_args(words)))
    except (RewardLoopError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - it is a program
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
