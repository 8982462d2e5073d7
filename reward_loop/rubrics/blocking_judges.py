"""Judges for rubrics that don't await, as seed 004 writes them: `self.mcp.call_tool("style_judge", text=…)["score"]`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from reward_loop.errors import ConfigError

if TYPE_CHECKING:
    from reward_loop.rubrics.judges.services import JudgeServices


class BlockingJudges:
    """Calls services that are open elsewhere and waits for them: for threads, such as those in which rubrics run."""

    def __init__(self, judges: JudgeServices) -> None:
        self._judges = judges

    def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any]:
        """Return a service's answer, as `JudgeServices.call_tool` does; ConfigError where an event loop would wait for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._judges.call_tool(service, **arguments))
        raise ConfigError(f"{service} was called in an event loop, which would stand still; take `judges` and await it there")
