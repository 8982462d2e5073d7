"""One place of a pool of samplers: the actor that is there, and what it holds.

Invariant: a snapshot is sent to an actor once, however many calls want it at the same time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from reward_loop.rinker.runtime.ray_calls import MakeActor, answer
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import SampleResponse


class PoolMember:
    """The place with this number; `make` makes an actor for it."""

    def __init__(self, number: int, make: MakeActor) -> None:
        self._number, self._make = number, make
        self._held: set[str] = set()
        self._sending = asyncio.Lock()
        self.actor: Any = make(number)

    def replace(self) -> None:
        """Put a new actor in the place of one that has died."""
        self.actor = self._make(self._number)
        self._held = set()

    async def sample(self, snapshot_id: str, shipped: Any, call: SampleCall) -> SampleResponse:
        """Ask the actor; `shipped` is the snapshot in Ray's store. Raises RayActorError where the actor dies."""
        actor = self.actor
        while True:
            await self._send(actor, snapshot_id, shipped)
            response: SampleResponse | None = await answer(actor.sample.remote(snapshot_id, call))
            if response is not None:
                return response
            self._forget(actor, snapshot_id)  # so many others came meanwhile that it was dropped

    async def _send(self, actor: Any, snapshot_id: str, shipped: Any) -> None:
        async with self._sending:
            if self.actor is actor and snapshot_id in self._held:
                return
            held = set(await answer(actor.hold.remote(shipped)))
            if self.actor is actor:
                self._held = held

    def _forget(self, actor: Any, snapshot_id: str) -> None:
        if self.actor is actor:
            self._held.discard(snapshot_id)
