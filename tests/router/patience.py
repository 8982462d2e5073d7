"""Waiting for what must happen, as long as it may take on a busy machine, and no longer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def until(holds: Callable[[], bool | Awaitable[bool]], wait_s: float = 30.0) -> None:
    """Return when `holds()`, or what it awaits, is true; TimeoutError if that is never so."""
    async with asyncio.timeout(wait_s):
        while True:
            held = holds()
            if (await held) if inspect.isawaitable(held) else held:
                return
            await asyncio.sleep(0.01)
