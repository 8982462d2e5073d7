"""Workers as Ray actors, on one machine or many.

Invariants: shards of a batch are taken by whichever worker has room, so the slowest shard decides nothing but itself; a worker
that dies is restarted by Ray and the rows it had are scored again, alone, so that a row which kills its worker ends as an
error and takes no other with it; nothing is padded.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reward_loop.config import RewardLoopConfig
from reward_loop.data import DataProto
from reward_loop.data.decode import Decoder
from reward_loop.data.sample import SampleReader
from reward_loop.errors import ConfigError, InvalidReward, RewardLoopError, WorkerDied
from reward_loop.functions.user_code import UserCode
from reward_loop.limits.server import LimitServer
from reward_loop.loop.sample_tasks import EmitRow
from reward_loop.loop.units import Rows, shards_of, units_of
from reward_loop.loop.worker import RewardLoopWorker
from reward_loop.managers.job import Job
from reward_loop.managers.scorer import Unit
from reward_loop.outcome import Outcome
from reward_loop.router.booking import LeastBooked

logger = logging.getLogger(__name__)

_ATTEMPTS_ALONE = 2
_ALONE = 1 << 30  # a load beside which nothing else is booked
_SHARDS_AHEAD = 2
_RESTART_S = 120.0
_RESTART_POLL_S = 0.2
_CALLS_PER_ACTOR = 100_000


class RayRewardLoopWorker(RewardLoopWorker):
    """The actor."""

    def __init__(self, code: UserCode, *args: Any, **kwargs: Any) -> None:
        code.load()
        super().__init__(*args, **kwargs)

    async def score_units(self, data: DataProto, units: list[Rows]) -> bytes:
        """Return the pickled outcomes of the rows of `data`, which holds just these units."""
        return _pickled(await self._collect(data, units))


class RayExecutor:
    """`num_workers` actors, spread over the alive nodes."""

    def __init__(
        self,
        config: RewardLoopConfig,
        compute_score: Callable[..., Any] | None,
        manager_class: type,
        reward_router_address: str | None = None,
    ) -> None:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=True)
        self._config = config
        self._job = f"reward_loop_{uuid.uuid4().hex[:12]}"
        nodes = [
            node["NodeID"]
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"] and node["Resources"].get("CPU", 0) > 0
        ]
        if not nodes:
            raise ConfigError("executor=ray: no alive node of the Ray cluster has a CPU; add one or set executor=local")
        self._nodes = nodes
        self._arguments = {
            "reward_router_address": reward_router_address,
            "compute_score": compute_score,
            "manager_class": manager_class,
        }
        self._workers: list[Any] = []
        self._limits: LimitServer | None = None
        self._load = LeastBooked(range(config.reward_model.num_workers))
        self._max_load = config.reward_model.max_concurrency
        self._turn = asyncio.Lock()
        self._released = asyncio.Condition()

    @property
    def rows_go_alone(self) -> bool:
        """A shard's rows come back together."""
        return False

    @property
    def handles(self) -> list[Any]:
        """The actors."""
        return list(self._workers)

    async def start(self) -> Unit:
        """Start the workers and build their managers; the first error stands for all."""
        job = await self._serve_limits()
        nodes = [self._nodes[number % len(self._nodes)] for number in range(self._config.reward_model.num_workers)]
        on_node = Counter(nodes)
        self._workers = [
            self._start_worker(number, node, replace(job, workers_on_node=on_node[node])) for number, node in enumerate(nodes)
        ]
        started = [await _unwrapped(worker.start.remote()) for worker in self._workers]
        self._unit: Unit
        self._unit, self._waits_only = started[0]
        return self._unit

    async def score(self, data: DataProto, emit: EmitRow, units: Sequence[Rows] | None = None) -> None:
        """Deal the batch's shards to the workers."""
        SampleReader(data, Decoder(None))  # a malformed batch fails here, before any shard, and with its own row numbers
        shards = shards_of(units_of(data, self._unit) if units is None else units, len(self._workers))
        # Units that only wait are all sent off at once; those that compute stay here until a worker has room, so that one
        # which is done early finds more to take.
        ahead = self._max_load if self._waits_only else _SHARDS_AHEAD * max(map(_count, shards), default=1)
        try:
            async with asyncio.TaskGroup() as tasks:
                for shard in shards:
                    worker = await self._acquire(_count(shard), ahead)
                    tasks.create_task(self._score_shard(worker, shard, data, emit))
        except* RewardLoopError as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        """Kill the actors."""
        for worker in self._workers:
            ray.kill(worker)
        if self._limits is not None:
            await self._limits.__aexit__(None, None, None)

    async def _serve_limits(self) -> Job:
        """Serve the limits that the workers keep together, where there are any."""
        limited = self._config.reward_model.rate_limit.limited or self._config.sandbox_fusion.url
        if not limited or self._config.reward_model.rate_limit.address:
            return Job(self._job)
        one_machine = len(ray.nodes()) == 1  # type: ignore[no-untyped-call]
        token = secrets.token_hex(16)
        host = "127.0.0.1" if one_machine else ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._limits = await LimitServer(host, 0, token=token).__aenter__()
        return Job(self._job, limits=self._limits.address, token=token)

    def _start_worker(self, number: int, node: str, job: Job) -> Any:
        # No CPU is reserved: with the trainer's placement groups holding all of them, a worker that asks for one never starts.
        options = {
            "name": f"reward_loop_worker_{number}",
            "namespace": self._job,
            "num_cpus": 0,
            "max_restarts": -1,
            "max_concurrency": _CALLS_PER_ACTOR,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
        }
        return (
            ray.remote(RayRewardLoopWorker)
            .options(**options)
            .remote(UserCode.of_this_process(), self._config, job=job, **self._arguments)
        )

    async def _acquire(self, load: int, ahead: int) -> int:
        # In turn, so that one who needs a worker with nothing else to do is not overtaken for ever.
        async with self._turn, self._released:
            while (worker := self._load.acquire(load, ahead)) is None:
                await self._released.wait()
            return worker

    async def _release(self, worker: int, load: int) -> None:
        async with self._released:
            self._load.release(worker, load)
            self._released.notify_all()

    async def _score_shard(self, worker: int, units: list[Rows], data: DataProto, emit: EmitRow) -> None:
        """Score the units on `worker`, beside others; if it dies, again on one that has nothing else to do."""
        if not await self._attempt(worker, _count(units), units, data, emit):
            await self._score_alone(units, data, emit)

    async def _score_alone(self, units: list[Rows], data: DataProto, emit: EmitRow) -> None:
        for _ in range(_ATTEMPTS_ALONE):
            worker = await self._acquire(_ALONE, 1)
            if await self._attempt(worker, _ALONE, units, data, emit):
                return
            if len(units) > 1:
                for unit in units:
                    await self._score_alone([unit], data, emit)
                return
        died = WorkerDied("the worker that scored it died each time, also with nothing else to do: it crashes the interpreter")
        for row in units[0]:
            emit(row, Outcome.from_error(died, 0.0))

    async def _attempt(self, worker: int, load: int, units: list[Rows], data: DataProto, emit: EmitRow) -> bool:
        """Emit the units' outcomes and return True; False if the worker died of it, once it is back."""
        rows = [row for unit in units for row in unit]
        try:
            reference = self._workers[worker].score_units.remote(data[rows], _renumbered(units))
            outcomes = cloudpickle.loads(await _unwrapped(reference))
        except RayActorError as error:
            logger.warning("worker=%d died with rows=%d in flight, scoring them again: %s", worker, len(rows), error)
            await self._revived(worker)
            return False
        finally:
            await self._release(worker, load)
        for row, outcome in zip(rows, outcomes, strict=True):
            emit(row, outcome)
        return True

    async def _revived(self, worker: int) -> None:
        """Wait until Ray has restarted the actor."""
        deadline = time.monotonic() + _RESTART_S
        while True:
            try:
                await _unwrapped(self._workers[worker].start.remote())
            except RayActorError as error:
                if time.monotonic() > deadline:
                    raise WorkerDied(f"worker {worker} died and Ray did not restart it in {_RESTART_S:.0f} s") from error
                await asyncio.sleep(_RESTART_POLL_S)
            else:
                return


def _count(units: Sequence[Rows]) -> int:
    return sum(map(len, units))


def _renumbered(units: Sequence[Rows]) -> list[Rows]:
    """Return the units by the numbers that their rows have in the shard."""
    numbers = iter(range(_count(units)))
    return [[next(numbers) for _ in unit] for unit in units]


def _pickled(outcomes: list[Outcome]) -> bytes:
    """Pickle outcomes together; one whose extra info can't be pickled becomes an error of its own sample."""
    try:
        return bytes(cloudpickle.dumps(outcomes))
    except Exception:  # noqa: BLE001 - any object's own pickling may raise anything
        return bytes(cloudpickle.dumps([_sendable(outcome) for outcome in outcomes]))


def _sendable(outcome: Outcome) -> Outcome:
    try:
        cloudpickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - as above
        invalid = InvalidReward(f"its extra info can't be sent from a worker: {type(error).__name__}: {error}")
        return Outcome.from_error(invalid, outcome.seconds)
    return outcome


async def _unwrapped(reference: Any) -> Any:
    """Await a Ray call; an error of ours comes out as itself, not as Ray's wrapper; cancelling us cancels the call."""
    try:
        return await reference
    except asyncio.CancelledError:
        ray.cancel(reference)
        raise
    except RayTaskError as error:
        if isinstance(error.cause, RewardLoopError):
            raise error.cause from None
        raise
