"""The reward models as a trainer has them: their servers behind one router, awake when they are needed.

Invariants: all of it runs on an event loop of its own, so every method works with and without a running loop; it is ready when
it is built, or nothing of it is left; standalone servers never sleep, colocated ones only while nobody holds a lease; `close`
ends every process.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import weakref
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError, RewardLoopError, RewardServerError
from reward_loop.loop_thread import LoopThread
from reward_loop.router.configured import router_settings
from reward_loop.router.process import RouterProcess
from reward_loop.serving.deployment import whole_config
from reward_loop.serving.leases import Lease, Leases, LeaseState
from reward_loop.serving.managed_servers import ManagedServers
from reward_loop.serving.placed import PlacedReplica
from reward_loop.serving.placement import placement_of
from reward_loop.serving.replica import Replica
from reward_loop.sync.training_mode import RewardModelTrainingMode

if TYPE_CHECKING:
    from torch import Tensor

    from reward_loop.sync.publisher import RewardModelPublisher
    from reward_loop.sync.report import PublishReport

logger = logging.getLogger(__name__)

_STARTING_AT_ONCE_ON_CPU = 3
_ROUTER_STOP_S = 1.0


class RewardModelManager:
    """Serves the reward models of a configuration; a context manager, ready when it is built.

    `config` is anything that `load_config` takes, or its section `reward_model`. `resource_pool` is where the servers go: verl's
    RayResourcePool or Ray placement groups. Raises ConfigError for what can't be served, RewardServerError for a server that
    does not start, and RouterError.
    """

    def __init__(self, config: RewardLoopConfig | Any, resource_pool: Any = None) -> None:
        self.config = whole_config(config)
        settings = self.config.reward_model
        if not settings.enable:
            raise ConfigError("a RewardModelManager needs reward_model.enable=true")
        self.colocated = not settings.enable_resource_pool
        """Whether the servers share the trainer's resources, and are to be asked under a lease only."""
        self._sleeps = self.colocated and settings.rollout.free_cache_engine
        self._placement = placement_of(self.config, resource_pool)
        self._loop = LoopThread("reward-models")
        self._at_exit = functools.partial(_close_if_open, weakref.ref(self))
        atexit.register(self._at_exit)
        self._placed: list[PlacedReplica] = []
        self._following: asyncio.Task[None] | None = None
        try:
            self._loop.run(self._start())
        except BaseException:  # Ctrl-C too: no server may stay behind a manager that was never handed out
            self.close()
            raise

    def get_router_address(self) -> str:
        """Return the "host:port" at which all models are served."""
        return self._router.address

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(dict.fromkeys(spec.name for spec in self._placement.specs))

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The servers, model by model; to be looked at, not to be told anything."""
        return tuple(placed.replica for placed in self._placed)

    @property
    def state(self) -> LeaseState:
        """Whether the servers are awake, asleep, or on the way."""
        return self._leases.state

    def wake_up(self) -> None:
        """Wake the servers until `sleep`; does nothing if they never sleep, or are awake for this reason already."""
        self._loop.run(self._hold())

    async def wake_up_async(self) -> None:
        """`wake_up` for a running event loop."""
        await self._loop.run_async(self._hold())

    def sleep(self) -> None:
        """End what `wake_up` began; returns when the servers sleep, or at once while there are leases."""
        self._loop.run(self._let_go())

    async def sleep_async(self) -> None:
        """`sleep` for a running event loop."""
        await self._loop.run_async(self._let_go())

    @asynccontextmanager
    async def lease(self, *, ahead: bool = False) -> AsyncGenerator[None]:
        """Keep the servers awake; those who come first wait until they are, the last to leave until they sleep.

        `ahead`: don't wait. Requests may be sent at once and wait at the router; a wake that failed is raised at the end.
        """
        if not self._sleeps:
            yield
            return
        lease = Lease(self._leases)
        try:
            await self._loop.run_async(lease.take(ahead=ahead))
            yield
        finally:
            await self._loop.run_async(lease.give_back())

    async def snapshot(self) -> dict[str, Any]:
        """Return what the router knows of each replica."""
        return await self._loop.run_async(self._router.snapshot())

    def servers_of(self, model: str | None = None) -> ManagedServers:
        """Return the servers of the model of this name; None where there is one model."""
        names = [*self.models] if model is None else [model]
        chosen = tuple(replica for replica in self.replicas if replica.spec.name in names)
        if len(names) > 1 or not chosen:
            raise ConfigError(f"model={model!r} must be one of {', '.join(self.models)}, which are served")
        return ManagedServers(chosen, self.lease)

    def publisher(self, model: str | None = None, **options: Any) -> RewardModelPublisher:
        """Return what publishes weights to all servers of a model, as `create_reward_publisher` does with these options."""
        from reward_loop.sync.create import create_reward_publisher  # serving needs no torch; publishing does

        options.setdefault("settings", self.config.reward_model.sync)
        options.setdefault("generative", self.servers_of(model).replicas[0].spec.kind == "generative")
        return create_reward_publisher(self, rank0_only=False, model=model, **options)

    def publish(
        self,
        state_dict: Mapping[str, Tensor],
        version: int | None = None,
        *,
        model: str | None = None,
        training_mode: RewardModelTrainingMode = RewardModelTrainingMode.FULL,
    ) -> PublishReport:
        """Have every server of a model serve these weights, as `RewardModelPublisher.publish` does."""
        return self.publisher(model).publish(state_dict, version, training_mode=training_mode)

    def close(self) -> None:
        """Stop the router and the servers; a second call does nothing."""
        atexit.unregister(self._at_exit)
        self._loop.close(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _start(self) -> None:
        self._held = False
        self._leases = Leases(self._wake, self._put_to_sleep, awake=not self._sleeps)
        self._router = RouterProcess(router_settings(self.config.reward_model.router))
        await self._placement.open()
        makes = self._placement.makes(asleep=self._sleeps)
        self._placed = [PlacedReplica(make, self._router, asleep=self._sleeps) for make in makes]
        await self._router.start()
        few = asyncio.Semaphore(_STARTING_AT_ONCE_ON_CPU if self._placement.on_cpu else len(self._placed))
        await _all(_in_turn(few, placed.start()) for placed in self._placed)
        self._following = asyncio.create_task(self._follow())
        logger.info(
            "reward models %s are served at %s by %d servers", ", ".join(self.models), self._router.address, len(self._placed)
        )

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for placed in self._placed:
                tasks.create_task(placed.follow())

    async def _stop(self) -> None:
        # The servers first begin to end: what the router still has in flight fails for those who ask a closed manager.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._router.stop(_ROUTER_STOP_S))
            for placed in self._placed:
                tasks.create_task(placed.replica.stop())
        await self._placement.close()

    async def _wake(self) -> None:
        """Wake every replica; one that restarts, or can't be woken, is done without while another one serves its model."""
        await _tried({placed: placed.announce() for placed in self._placed})
        self._leases.announced.set()
        late = [placed for placed in self._placed if placed.replica.state == "restarting"]
        failures = await _tried({placed: placed.wake() for placed in self._placed if placed not in late})
        served = {placed.replica.spec.name for placed in self._placed if placed not in late and placed not in failures}
        failures |= await _tried({placed: placed.wake(wait=placed.replica.spec.name not in served) for placed in late})
        served |= {placed.replica.spec.name for placed in late if placed not in failures}
        said = "; ".join(map(str, failures.values()))
        if missing := [model for model in self.models if model not in served]:
            await _tried({placed: placed.sleep() for placed in self._placed})
            raise RewardServerError(f"no server of {', '.join(missing)} could be woken: {said}")
        if failures:
            logger.error("servers are done without until the next wake: %s", said)

    async def _put_to_sleep(self) -> None:
        self._leases.announced.clear()
        failures = await _tried({placed: placed.sleep() for placed in self._placed if placed.replica.state != "failed"})
        if failures:
            raise next(iter(failures.values()))

    async def _hold(self) -> None:
        if self._sleeps and not self._held:
            self._held = True
            try:
                await self._leases.acquire()
            except BaseException:  # cancelled too: what is not held must not be let go
                self._held = False
                raise

    async def _let_go(self) -> None:
        if self._held:
            self._held = False
            await self._leases.release()


async def _in_turn(few: asyncio.Semaphore, work: Coroutine[Any, Any, None]) -> None:
    async with few:
        await work


async def _all(work: Any) -> None:
    """Do it side by side; the first error of ours ends the rest and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in work:
                tasks.create_task(each)
    except* RewardLoopError as group:
        raise group.exceptions[0] from None


async def _tried(work: dict[PlacedReplica, Coroutine[Any, Any, None]]) -> dict[PlacedReplica, RewardLoopError]:
    """Do it side by side to the end; return what failed."""
    failures: dict[PlacedReplica, RewardLoopError] = {}

    async def tried(placed: PlacedReplica, each: Coroutine[Any, Any, None]) -> None:
        try:
            await each
        except RewardLoopError as error:
            failures[placed] = error

    async with asyncio.TaskGroup() as tasks:
        for placed, each in work.items():
            tasks.create_task(tried(placed, each))
    return failures


def _close_if_open(manager: weakref.ref[RewardModelManager]) -> None:
    """Close a manager that its user left open when the interpreter exits: its servers must not outlive it."""
    if (left := manager()) is not None:
        left.close()
