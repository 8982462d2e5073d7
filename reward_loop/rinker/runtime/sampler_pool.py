"""A sampler over several Ray actors, each with models of its own.

Invariants: a call gets one answer, of one actor; when that dies the call is asked again, with the same seed, and the actor is
replaced; no actor has more than `max_in_flight` calls, and those that wait are taken in the order in which they came; nothing is
left behind by `close`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import ray
from ray.exceptions import RayActorError

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.runtime.pool_member import PoolMember
from reward_loop.rinker.runtime.ray_calls import Places, answer, connect
from reward_loop.rinker.runtime.sampler_actor import SamplerActor
from reward_loop.rinker.runtime.settings import SamplerPoolSettings
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.types import SampleResponse
from reward_loop.router.booking import LeastBooked

logger = logging.getLogger(__name__)

_CALLS_PER_ACTOR = 100_000


class SamplerPool:
    """A `Sampler`; its actors are started with the first call, or by `start`. Of one event loop."""

    def __init__(self, sampler: HFSamplerSettings | None = None, settings: SamplerPoolSettings | None = None) -> None:
        self._settings = settings or SamplerPoolSettings()
        sampler = sampler or HFSamplerSettings()
        # Some versions of Ray show all GPUs to an actor that has none.
        self._sampler = sampler if self._settings.gpus else dataclasses.replace(sampler, device="cpu")
        self._places = Places(self._settings.actors, self._settings)
        self._load = LeastBooked(range(self._settings.actors))
        self._members: list[PoolMember] = []
        self._shipped: OrderedDict[str, Any] = OrderedDict()
        self._starting = asyncio.Lock()
        self._shipping = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()
        self._waiting = 0
        self._closed = False

    @property
    def actors(self) -> list[Any]:
        """The handles of the actors that are there now."""
        return [member.actor for member in self._members]

    @property
    def waiting(self) -> int:
        """How many calls wait for an actor with room."""
        return self._waiting

    async def start(self) -> Self:
        """Start the actors, unless they are; RequestFailedError "server" where there is no room for them, or too little time."""
        async with self._starting:
            if not self._members and not self._closed:
                connect()
                try:
                    await self._start()
                except BaseException:  # cancelled too: no actor may stay behind
                    self._end()
                    raise
        return self

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`."""
        await self.start()
        # Chosen here, so that a call which is asked again gets the same answer.
        seed = secrets.randbits(63) if call.params.seed is None else call.params.seed
        call = dataclasses.replace(call, params=dataclasses.replace(call.params, seed=seed))
        for _ in range(self._settings.attempts):
            async with self._booked() as member:
                actor = member.actor
                try:
                    return await member.sample(snapshot.id, await self._ship(snapshot), call)
                except RayActorError as error:
                    self._replace(member, actor, error)
        raise RequestFailedError(
            f"{self._settings.attempts} samplers died with this call in flight: it may need more memory than they have",
            category="server",
        )

    async def close(self) -> None:
        """See `Sampler.close`; what runs fails."""
        self._closed = True
        async with self._starting:
            self._end()

    async def _start(self) -> None:
        await self._places.reserve()
        self._members = [PoolMember(number, self._actor) for number in range(self._settings.actors)]
        limit_s = self._settings.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                for member in self._members:
                    await answer(member.actor.pid.remote())
        except (TimeoutError, RayActorError) as error:
            why = f"no answer in {limit_s:g} s (start_timeout_s)" if isinstance(error, TimeoutError) else str(error)
            raise RequestFailedError(f"the samplers could not be started: {why}", category="server") from error

    def _end(self) -> None:
        for actor in self.actors:
            ray.kill(actor)
        self._members = []
        self._shipped.clear()
        self._places.release()
        self._released.set()

    def _actor(self, number: int) -> Any:
        options = {**self._places.options(number), "max_concurrency": _CALLS_PER_ACTOR}
        return ray.remote(SamplerActor).options(**options).remote(self._sampler, self._settings.max_snapshots)

    @asynccontextmanager
    async def _booked(self) -> AsyncGenerator[PoolMember]:
        """Give the member with the fewest calls, once one has room."""
        self._waiting += 1
        try:
            number = await self._room()
        finally:
            self._waiting -= 1
        try:
            if self._closed:
                raise _closed()
            yield self._members[number]
        finally:
            self._load.release(number, 1)
            self._released.set()

    async def _room(self) -> int:
        async with self._turn:  # in the order in which they came
            while (number := self._load.acquire(1, self._settings.max_in_flight)) is None:
                self._released.clear()
                await self._released.wait()
            return number

    def _replace(self, member: PoolMember, actor: Any, error: RayActorError) -> None:
        """Put a new actor in the place of one that died, unless another call has seen it before."""
        if self._closed:
            raise _closed() from error
        if member.actor is actor:
            logger.warning("actor=%s died, its calls are asked again: %s", actor, str(error).partition("\n")[0])
            member.replace()

    async def _ship(self, snapshot: Snapshot) -> Any:
        """Return the snapshot in Ray's store, where it is put once for all actors."""
        async with self._shipping:
            if snapshot.id not in self._shipped:
                self._shipped[snapshot.id] = await asyncio.to_thread(ray.put, snapshot)
                while len(self._shipped) > self._settings.max_snapshots:
                    self._shipped.popitem(last=False)
            self._shipped.move_to_end(snapshot.id)
            return self._shipped[snapshot.id]


def _closed() -> RequestFailedError:
    return RequestFailedError("the pool of samplers is closed; build another one", category="server")
