"""Tasks that outlive the request that began them, and end with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Background:
    """Owns tasks: the event loop itself keeps no task alive."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this beside everything else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # Who awaits it has the error too; where nobody does any more, this is what is left of it.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("background task ended: %s: %s", type(error).__name__, error)
