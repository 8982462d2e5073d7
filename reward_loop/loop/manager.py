"""What a trainer holds: batches, single samples or a stream go in, rewards come out.

Invariants: work runs on one event loop in a thread of its own, so every method works with and without a running loop; inputs
are never written to; what came in as a foreign DataProto comes back as one.
"""

from __future__ import annotations

import atexit
import functools
import weakref
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from reward_loop.config import RewardLoopConfig
from reward_loop.config_loading import load_config
from reward_loop.data import DataProto, as_data_proto, like
from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.functions.model_reward import check_model_reward, model_reward
from reward_loop.loop.assemble import assemble
from reward_loop.loop.executor import Executor, LocalExecutor
from reward_loop.loop.judge import reward_function
from reward_loop.loop.stream import Scored, Stream
from reward_loop.loop.units import Rows
from reward_loop.loop.worker import RewardLoopWorker, error_policy, one_unit
from reward_loop.loop_thread import LoopThread
from reward_loop.managers.registry import resolve_reward_manager_cls
from reward_loop.managers.scorer import Unit
from reward_loop.outcome_table import OutcomeTable

if TYPE_CHECKING:
    from reward_loop.serving.manager import RewardModelManager

__all__ = ["RewardLoopManager", "Scored"]


class RewardLoopManager:
    """Scores rollouts as the configuration says; a context manager, ready when it is built.

    `config` is anything that `load_config` takes. `compute_score` is a reward function passed as an object instead of a file.
    `rm_resource_pool` is where the reward model's servers go: verl's RayResourcePool or Ray placement groups. Raises ConfigError
    for whatever can't work, and RewardServerError for a reward model that does not start.
    """

    def __init__(
        self,
        config: RewardLoopConfig | Any,
        rm_resource_pool: Any = None,
        *,
        compute_score: Callable[..., Any] | None = None,
    ) -> None:
        self.config = config if isinstance(config, RewardLoopConfig) else load_config(config)
        self._compute_score = compute_score
        if self.reward_function is model_reward:  # a mistake in either must not cost the start of the servers first
            check_model_reward(self.config)
        self._models = _open_models(self.config, rm_resource_pool)
        self._loop = LoopThread("reward-loop")
        self._at_exit = functools.partial(_close_if_open, weakref.ref(self))
        atexit.register(self._at_exit)
        self._executor: Executor | None = None
        try:
            self._executor = self._build_executor(compute_score)
            self._unit: Unit = self._loop.run(self._executor.start())
        except BaseException:  # Ctrl-C too: no thread or server may stay behind a manager that was never handed out
            self.close()
            raise

    @property
    def unit(self) -> Unit:
        """What the reward manager scores at a time: a single sample, the group of one `uid`, or a batch."""
        return self._unit

    @property
    def reward_function(self) -> Callable[..., Any]:
        """The function that scores: the user's, or the default rules."""
        return reward_function(self.config, self._compute_score)

    @property
    def reward_model_manager(self) -> RewardModelManager | None:
        """The reward model's servers and router, where one is enabled."""
        return self._models

    @property
    def reward_loop_worker_handles(self) -> list[Any] | None:
        """The workers' Ray actor handles, for `handle.compute_score.remote(item)` from a rollout loop.

        None if there are none, or if a reward model shares the trainer's resources: it sleeps unless this manager is asked.
        """
        return None if self._models is not None and self._models.colocated else self._running.handles

    def compute_rm_score(self, data: DataProto) -> DataProto:
        """Score a batch: `rm_scores` [B, R] float32, `reward_mask` [B], extra-info columns, `meta_info["reward_extra_keys"]`.

        Raises DataError for a malformed batch, and BatchFailed under `on_error: raise` after every sample has ended.
        """
        return self._loop.run(self._score_batch(data))

    async def compute_rm_score_async(self, data: DataProto) -> DataProto:
        """`compute_rm_score` for a running event loop."""
        return await self._loop.run_async(self._score_batch(data))

    async def compute_score(self, data: DataProto) -> dict[str, Any]:
        """Score one sample (or all outputs of one trajectory): `{"reward_score", "reward_extra_info"}`."""
        item = as_data_proto(data)
        scored = await self._loop.run_async(self._outcomes(item, one_unit(item)))
        policy = error_policy(self.config)
        policy.check(scored[-1:], ["0"])
        return policy.result(scored[-1])

    def stream(
        self, samples: AsyncIterable[DataProto] | Iterable[DataProto], *, max_pending: int | None = None
    ) -> AsyncGenerator[Scored, None]:
        """Score samples as they come and yield each row's outcome as it ends, in whatever order.

        An item of `samples` holds one sample, or several rows that belong together. No more than `max_pending` rows (default
        `reward_model.max_concurrency`) are taken and not yet yielded: a slow consumer or grader holds the producer back.
        Failures are outcomes here, whatever `on_error` says, and an error of the producer comes after what it gave before.
        Leaving the loop early cancels what is under way. A manager that scores groups waits for the
        `actor_rollout_ref.rollout.n` samples of a `uid`; it takes more than `max_pending` rows only while all that it has
        wait for their groups.
        """
        group_size = self.config.actor_rollout_ref.rollout.n if self._unit == "group" else 1
        pending = max_pending or self.config.reward_model.max_concurrency
        results = Stream(self._loop, self._running, samples, pending, group_size).results()
        return results if self._models is None else _while_awake(self._models, results)

    def close(self) -> None:
        """Cancel what is under way, stop the workers, the event loop and the servers; a second call does nothing."""
        atexit.unregister(self._at_exit)
        try:
            self._loop.close(self._close_executor)
        finally:
            if self._models is not None:
                self._models.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _build_executor(self, compute_score: Callable[..., Any] | None) -> Executor:
        settings = self.config.reward_model
        if settings.executor == "ray" and settings.use_reward_loop:
            try:
                from reward_loop.loop.ray_executor import RayExecutor
            except ModuleNotFoundError as error:
                raise ConfigError(f"executor=ray needs {error.name}: pip install 'reward-loop[ray]'") from error
            # Resolved here and handed on, so that a class which only this process has registered works in every worker.
            manager_class = resolve_reward_manager_cls(settings.reward_manager)
            return RayExecutor(self.config, compute_score, manager_class, self._router_address)
        worker = RewardLoopWorker(self.config, self._router_address, compute_score=compute_score)
        return LocalExecutor(worker, in_order=not settings.use_reward_loop)

    async def _score_batch(self, data: DataProto) -> DataProto:
        batch = as_data_proto(data)
        result = assemble(batch, await self._outcomes(batch), error_policy(self.config))
        return like(data, result)

    async def _outcomes(self, batch: DataProto, units: Sequence[Rows] | None = None) -> OutcomeTable:
        outcomes = OutcomeTable(len(batch))
        async with self._awake():
            await self._running.score(batch, outcomes.put, units)
        return outcomes

    def _awake(self) -> AbstractAsyncContextManager[object]:
        """Keep the reward model awake; its requests wait at the router until it is, so what comes before them need not."""
        return nullcontext() if self._models is None else self._models.lease(ahead=True)

    @property
    def _router_address(self) -> str | None:
        return None if self._models is None else self._models.get_router_address()

    @property
    def _running(self) -> Executor:
        if self._executor is None:
            raise RewardLoopError("this manager did not start")
        return self._executor

    async def _close_executor(self) -> None:
        if self._executor is not None:
            await self._executor.close()


def _open_models(config: RewardLoopConfig, pool: Any) -> RewardModelManager | None:
    if not config.reward_model.enable:
        if pool is not None:
            raise ConfigError("rm_resource_pool was passed, but reward_model.enable=false: enable the model or pass no pool")
        return None
    from reward_loop.serving.manager import RewardModelManager

    return RewardModelManager(config, pool)


async def _while_awake(models: RewardModelManager, results: AsyncGenerator[Scored, None]) -> AsyncGenerator[Scored, None]:
    async with models.lease(ahead=True), aclosing(results):
        async for scored in results:
            yield scored


def _close_if_open(manager: weakref.ref[RewardLoopManager]) -> None:
    """Close a manager that its user left open when the interpreter exits: its threads must not outlive it."""
    if (left := manager()) is not None:
        left.close()
