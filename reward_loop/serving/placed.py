"""A replica and its place at the router.

Invariant: the router sends to a replica only between the end of its waking and the beginning of its sleep; the two are changed
together, one change at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reward_loop.errors import RewardLoopError, RouterError
from reward_loop.router.process import RouterProcess
from reward_loop.serving.replica import OnChange, Replica

logger = logging.getLogger(__name__)


class PlacedReplica:
    """The replica that `make` builds, known to `router` once it is started."""

    def __init__(self, make: Callable[[OnChange], Replica], router: RouterProcess, *, asleep: bool) -> None:
        self.replica = make(self._note)
        self._router = router
        self._asleep = asleep
        self._turn = asyncio.Lock()
        self._url: str | None = None
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start it and tell the router; it sleeps afterwards, if it is to start asleep."""
        await self._move(await self.replica.start())

    async def announce(self) -> None:
        """Let requests wait at the router until it is awake."""
        async with self._turn:
            if self._url is not None:
                await self._router.waking(self._url)

    async def wake(self, *, wait: bool = True) -> None:
        """Wake it, then let the router send to it; without `wait`, one that restarts gets there when it is back."""
        async with self._turn:
            self._asleep = False
            try:
                await self.replica.wake_up(wait=wait)
            except RewardLoopError:
                if self._url is not None:
                    await self._router.sleep(self._url)
                raise
            if self.replica.state == "awake":
                await self._router.wake(await self._move(self.replica.url))

    async def sleep(self) -> None:
        """Have the router send it nothing more, wait for what is in flight, then put it to sleep."""
        async with self._turn:
            self._asleep = True
            if self._url is not None:
                await self._router.sleep(self._url)
            await self.replica.sleep()

    async def follow(self) -> None:
        """Tell the router, for as long as this is awaited, when the replica is back after a crash, and where."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self._turn:
                if self._url is None or self.replica.state != "awake" or self._asleep:
                    continue
                try:
                    await self._router.wake(await self._move(self.replica.url))
                except RouterError as error:  # it finds out by itself, only later
                    logger.warning("the router was not told that %s is back: %s", self.replica.spec.label, error)

    def _note(self, _: Replica) -> None:
        self._changed.set()

    async def _move(self, url: str) -> str:
        """Have the router know the replica by this address only."""
        if url != self._url:
            await self._router.add(self.replica.spec.name, url)
            if self._asleep:
                await self._router.sleep(url)
            if self._url is not None:
                await self._router.remove(self._url)
            self._url = url
        return url
