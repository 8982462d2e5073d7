"""A replica as a Ray actor, which runs the server on whatever machine it is placed.

Invariants: the server ends with its actor, also when that is killed; an actor that dies is made again, in the same place and in
the state that was last asked for, and on the same machine serves the weights that were published last; the actor restarts its own
server as `VLLMServer` does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from reward_loop.errors import RewardLoopError, RewardServerError
from reward_loop.machine import usable_cores
from reward_loop.serving.replica import OnChange, Replica, ReplicaState
from reward_loop.serving.restarts import Restarts
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec

logger = logging.getLogger(__name__)

_SLACK_S = 30.0
"""Seconds beyond the server's own deadlines for the actor around it."""
_STOP_SLACK_S = 2.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor goes, and what it takes there."""

    strategy: Any
    num_cpus: float = 0.0
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a server."""

    state: ReplicaState
    url: str


class ServerActor:
    """The actor."""

    def __init__(self, spec: ServerSpec, *, asleep: bool, many_machines: bool, sharers: int, owner: str) -> None:
        threads = max(1, usable_cores() // sharers - 1)
        host = ray.util.get_node_ip_address() if many_machines else spec.host  # type: ignore[no-untyped-call]
        spec = dataclasses.replace(spec, host=host, threads=threads)
        self._server = VLLMServer(spec, asleep=asleep, on_change=self._note, owner=owner)
        self._changed = asyncio.Event()

    async def start(self) -> Seen:
        """Start the server."""
        await self._server.start()
        return self._seen()

    async def sleep(self) -> Seen:
        """Put it to sleep."""
        await self._server.sleep()
        return self._seen()

    async def wake_up(self, wait: bool) -> Seen:
        """Wake it."""
        await self._server.wake_up(wait=wait)
        return self._seen()

    async def change(self, seen: Seen) -> Seen:
        """Wait until it is no longer as it was seen."""
        while self._seen() == seen:
            self._changed.clear()
            await self._changed.wait()
        return self._seen()

    async def pid(self) -> int:
        """Return the process that listens; 0 if there is none."""
        return self._server.pid

    async def stop(self) -> None:
        """End it."""
        await self._server.stop()

    def _seen(self) -> Seen:
        return Seen(self._server.state, self._server.url)

    def _note(self, _: Replica) -> None:
        self._changed.set()


class RayReplica:
    """The replica as its manager has it."""

    def __init__(self, spec: ServerSpec, place: Place, *, asleep: bool, on_change: OnChange) -> None:
        self._spec = spec
        self._place = place
        self._want_asleep = asleep
        self._on_change = on_change
        self._seen = Seen("stopped", "")
        self._trouble = ""
        self._actor: Any = None
        self._owner = uuid.uuid4().hex[:12]
        """By this name an actor finds the updates that an earlier one has left on its machine."""
        self._watching: asyncio.Task[None] | None = None
        self._restarts = Restarts(spec.max_restarts, spec.restart_backoff_s)

    @property
    def spec(self) -> ServerSpec:
        """What it is asked to be."""
        return self._spec

    @property
    def url(self) -> str:
        """Its address, from `start` on."""
        return self._seen.url

    @property
    def state(self) -> ReplicaState:
        """What it does."""
        return self._seen.state

    @property
    def actor(self) -> Any:
        """The handle of the actor that runs it now."""
        return self._actor

    async def start(self) -> str:
        """Make the actor, and return the server's address once it has answered a probe."""
        try:
            await self._start_actor()
        except BaseException:  # cancelled too: no actor may stay behind
            await self.stop()
            raise
        self._watching = asyncio.create_task(self._watch(), name=f"watch {self._spec.label}")
        return self.url

    async def stop(self) -> None:
        """End the server and its actor."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._actor is not None:
            try:
                await self._ask("stop", limit_s=self._spec.stop_timeout_s + _STOP_SLACK_S)
            except RewardServerError as error:
                logger.warning("the actor of server=%s is killed: %s", self._spec.label, error)
            self._drop_actor()
        self._seen = Seen("stopped", self._seen.url)

    async def sleep(self) -> None:
        """Give up its memory; one that restarts comes back asleep."""
        self._want_asleep = True
        if self.state != "restarting":
            await self._switch("sleep")

    async def wake_up(self, *, wait: bool = True) -> None:
        """Be able to serve again; without `wait`, one that restarts is not waited for."""
        self._want_asleep = False
        if wait or self.state != "restarting":
            await self._switch("wake_up", wait)

    async def _switch(self, method: str, *arguments: Any) -> None:
        """Tell the actor; while it is made again, wait for that."""
        try:
            async with asyncio.timeout(self._spec.start_timeout_s + _SLACK_S):
                while self._actor is None or self.state == "restarting" or not await self._told(method, *arguments):
                    if self.state in ("failed", "stopped"):
                        raise RewardServerError(f"server {self._spec.label} can't {method}: it is {self.state}. {self._trouble}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise RewardServerError(
                f"server {self._spec.label} did not {method} in {self._spec.start_timeout_s:.0f} s: "
                f"it is {self.state}; {self._trouble}"
            ) from None

    async def _told(self, method: str, *arguments: Any) -> bool:
        try:
            self._seen = await _unwrapped(getattr(self._actor, method).remote(*arguments))
        except RayActorError as error:  # `_watch` sees it too, and makes it again
            self._trouble = str(error)
            return False
        return True

    async def _start_actor(self) -> None:
        many_machines = len([node for node in ray.nodes() if node["Alive"]]) > 1  # type: ignore[no-untyped-call]
        self._actor = (
            ray.remote(ServerActor)
            .options(num_cpus=self._place.num_cpus, num_gpus=0, scheduling_strategy=self._place.strategy, max_concurrency=100)
            .remote(self._spec, asleep=self._want_asleep, many_machines=many_machines, sharers=2, owner=self._owner)
        )
        self._seen = await self._ask("start", limit_s=self._spec.start_timeout_s + _SLACK_S)

    async def _ask(self, method: str, *, limit_s: float) -> Any:
        try:
            async with asyncio.timeout(limit_s):
                return await _unwrapped(getattr(self._actor, method).remote())
        except TimeoutError:
            raise RewardServerError(
                f"the actor of server {self._spec.label} did not {method} in {limit_s:.0f} s; {free_resources()}"
            ) from None
        except RayActorError as error:
            raise RewardServerError(f"the actor of server {self._spec.label} died as it should {method}: {error}") from error

    async def _watch(self) -> None:
        """Follow what the actor tells; make it again when it dies, until it is given up."""
        self._restarts.ready_at = time.monotonic()
        while self._actor is not None:
            try:
                self._see(await _unwrapped(self._actor.change.remote(self._seen)))
            except RayActorError as error:
                await self._revive(f"lost its actor: {error}")

    async def _revive(self, why: str) -> None:
        """Make the actor again, after longer and longer pauses; without an actor it was given up."""
        self._actor = None
        while self._actor is None:
            self._trouble = why
            pause_s = self._restarts.pause_s(time.monotonic())
            if pause_s is None:
                logger.error("server=%s is given up after crash=%d: it %s", self._spec.label, self._restarts.in_row, why)
                self._see(Seen("failed", self.url))
                return
            logger.warning(
                "server=%s %s, crash=%d, starts again in %.1f s", self._spec.label, why, self._restarts.in_row, pause_s
            )
            self._see(Seen("restarting", self.url))
            await asyncio.sleep(pause_s)
            try:
                await self._start_actor()
                self._restarts.ready_at = time.monotonic()
                self._on_change(self)
            except RewardServerError as error:
                why = f"did not start again: {error}"
                self._drop_actor()

    def _drop_actor(self) -> None:
        ray.kill(self._actor)
        self._actor = None

    def _see(self, seen: Seen) -> None:
        if seen != self._seen:
            self._seen = seen
            self._on_change(self)


def free_resources() -> str:
    """Return in words what the cluster has, and what of it is free."""
    return f"the cluster has {ray.cluster_resources()}, of which {ray.available_resources()} is free"  # type: ignore[no-untyped-call]


async def _unwrapped(reference: Any) -> Any:
    """Await a Ray call; an error of ours comes out as itself, not as Ray's wrapper."""
    try:
        return await reference
    except RayTaskError as error:
        if isinstance(error.cause, RewardLoopError):
            raise error.cause from None
        raise
