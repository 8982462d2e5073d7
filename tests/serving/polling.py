"""Waiting for what another process does, with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], wait_s: float = 30.0) -> None:
    """Return when the condition holds; TimeoutError after `wait_s` seconds."""
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110 - nobody here is told of it
            await asyncio.sleep(0.02)
