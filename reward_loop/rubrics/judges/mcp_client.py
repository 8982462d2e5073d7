"""Judge services for code that does not await, as seed 004 calls them: `MCPClient(endpoint).call_tool("style_judge", text=…)`.

Invariant: services live in a loop of their own, in one daemon thread; any thread may call, except that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from reward_loop.errors import ConfigError
from reward_loop.loop_thread import LoopThread
from reward_loop.rubrics.judges.service_settings import ANY_TOOL
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.tool import Tool


class MCPClient:
    """Opens services when it is made: a mapping of them, a YAML file, or the URL of a server, whose tools are called by name."""

    def __init__(
        self,
        services: Mapping[str, Any] | str | Path,
        *,
        functions: Mapping[str, Any] | None = None,
        router_address: str | None = None,
    ) -> None:
        if isinstance(services, str) and services.startswith(("http://", "https://")):
            services = {ANY_TOOL: {"type": "mcp", "endpoint": services}}
        self._services = JudgeServices(services, functions=functions, router_address=router_address)
        self._thread = LoopThread("judge services")
        try:
            self._loop = self._thread.run(self._opened())
        except BaseException:  # Ctrl-C too: no thread may stay behind a client that was never handed out
            self.close()
            raise

    def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any]:
        """Return a service's answer, as `JudgeServices.call_tool` does."""
        self._refuse_own_loop()
        return self._thread.run(self._services.call_tool(service, **arguments))

    def tools(self) -> dict[str, tuple[Tool, ...]]:
        """Return the tools of each service."""
        return self._services.tools()

    def close(self) -> None:
        """End the services and the thread; a second call does nothing."""
        self._thread.close(self._services.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _opened(self) -> asyncio.AbstractEventLoop:
        await self._services.open()
        return asyncio.get_running_loop()

    def _refuse_own_loop(self) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self._loop:
            raise ConfigError(
                "an MCPClient can't be called in its own loop, which would wait for itself; await JudgeServices there"
            )
