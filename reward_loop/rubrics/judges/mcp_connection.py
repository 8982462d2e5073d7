"""One connection to an MCP server, by whatever transport; the only module that knows the SDK's client.

Invariants: the SDK is loaded when a connection is made, not before; what the SDK raises leaves here as a ConfigError (it can
never work), a ConnectionLost (asking again may) or a JudgeError (the server answered, and not with a result).
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

from pydantic import ValidationError

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.tool import Tool, ToolResult
from reward_loop.scoring.endpoint import api_key, service_url

_CLOSED = -32000
_TERMINATED = ("Session terminated", "Session not found")
"""What is said of a session that the server does not know: it was started again."""
_ALONE = ("SSE stream", "Server returned an error response")
"""What it says of a single request whose response ended early, or was 5xx."""
_PAGES = 100


class ConnectionLost(Exception):
    """The call's connection broke before it had its result; `only_this` says that others may be well."""

    def __init__(self, why: str, *, only_this: bool = False) -> None:
        super().__init__(why)
        self.only_this = only_this


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server by streamable HTTP; one without a path means /mcp."""

    endpoint: str
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class StdioTarget:
    """A server that is a child process."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """A server of the SDK in this process."""

    server: Any


Target: TypeAlias = HttpTarget | StdioTarget | ObjectTarget


class McpConnection:
    """An open connection: lists tools and calls them, any number at once."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def tools(self) -> tuple[Tool, ...]:
        """Return all tools of the server."""
        found: list[Tool] = []
        cursor: str | None = None
        with _translated("tools/list"):
            for _ in range(_PAGES):
                page = await self._client.list_tools(cursor=cursor)
                found += [Tool.from_schema(tool.name, tool.input_schema, tool.description or "") for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    break
        return tuple(found)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Return what a tool gave. The deadline is the caller's."""
        with _translated(tool):
            result = await self._client.call_tool(tool, dict(arguments))
        text = "\n".join(block.text for block in result.content if block.type == "text")
        return ToolResult(result.structured_content, text, bool(result.is_error))


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[McpConnection]:
    """Open a connection, and close it (and end a child process) when the block is left.

    The task that enters it is the SDK's: it is cancelled when the connection breaks.
    """
    sdk = _sdk()
    async with AsyncExitStack() as stack:
        yield McpConnection(await stack.enter_async_context(sdk.Client(await _server(target, stack))))


async def _server(target: Target, stack: AsyncExitStack) -> Any:
    """Return a target as the SDK's client takes it."""
    if isinstance(target, ObjectTarget):
        return target.server
    if isinstance(target, HttpTarget):
        return await _http(target, stack)
    from mcp import StdioServerParameters

    program, *rest = target.command
    if shutil.which(program, path=target.env.get("PATH")) is None:
        raise ConfigError(f"there is no program {program} to start a judge server with; check its command")
    return StdioServerParameters(command=program, args=rest, env=dict(target.env), cwd=target.cwd)


async def _http(target: HttpTarget, stack: AsyncExitStack) -> Any:
    from mcp.client.streamable_http import streamable_http_client

    from reward_loop.rubrics.judges.mcp_transport import http_client

    url = service_url(target.endpoint)
    key = api_key(target.api_key_env, url)
    client = await stack.enter_async_context(http_client({"Authorization": f"Bearer {key}"} if key else {}))
    return streamable_http_client(str(url.with_path("/mcp") if url.path in ("", "/") else url), http_client=client)


def _sdk() -> ModuleType:
    try:
        import mcp
    except ImportError:
        raise ConfigError("judges by MCP need the package mcp: pip install 'reward-loop[mcp]'") from None
    if not hasattr(mcp, "Client"):
        raise ConfigError("the installed mcp is of version 1; as a client it must be 2 or later: pip install 'mcp>=2'")
    return mcp


@contextmanager
def _translated(what: str) -> Generator[None]:
    """Turn what the SDK raises into an error of ours."""
    import anyio
    import httpx2
    from mcp import MCPError

    try:
        yield
    except MCPError as error:
        if error.code == _CLOSED or error.message in _TERMINATED or error.message.startswith(_ALONE):
            raise ConnectionLost(error.message, only_this=error.message.startswith(_ALONE)) from error
        raise JudgeError(f"{what}: the server refused: {error.message} ({error.code})") from error
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, httpx2.HTTPError) as error:
        raise ConnectionLost(f"{type(error).__name__}: {error}") from error
    except (RuntimeError, ValidationError) as error:  # a result that is not what the tool's own schema says
        raise JudgeError(f"{what} gave a result that can't be used: {error}") from error
