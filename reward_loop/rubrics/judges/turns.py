"""How many calls of a judge are under way at once.

Invariant: the wait for a turn does not count towards a sample's deadline.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from reward_loop.deadline import waiting


class Turns:
    """At most `most` at a time in each event loop: an object that rubrics hold may be used from several."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Wait for a turn, and give it back when the block is left."""
        turns = self._by_loop.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._most))
        with waiting():
            await turns.acquire()
        try:
            yield
        finally:
            turns.release()
