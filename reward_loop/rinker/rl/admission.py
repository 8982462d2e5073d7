"""How many episodes are sampled at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Admission:
    """Room for `limit` episodes. A group comes in whole, for its episodes may wait for each other; a larger one alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._left = asyncio.Condition()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def of(self, episodes: int) -> AsyncGenerator[None]:
        """Hold room for a group; those that wait come in in the order in which they came."""
        async with self._turn, self._left:
            await self._left.wait_for(lambda: not self._inside or self._inside + episodes <= self._limit)
            self._inside += episodes
        try:
            yield
        finally:
            async with self._left:
                self._inside -= episodes
                self._left.notify_all()
