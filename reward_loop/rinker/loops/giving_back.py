"""What a run gives back to its service when it needs it no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from reward_loop.errors import TrainingError

logger = logging.getLogger(__name__)


async def gave_back(free: Callable[[], Awaitable[None]], else_log: str, timeout_s: float = 30.0) -> bool:
    """Free something, and say whether that worked. Whatever the run came to is of more weight, so a failure is only logged."""
    try:
        async with asyncio.timeout(timeout_s):
            await free()
    except (TrainingError, TimeoutError, RuntimeError) as error:  # RuntimeError: the service was closed, and all that it held
        logger.warning("%s: %s", else_log, str(error) or f"it took more than {timeout_s:g} s")
        return False
    return True
