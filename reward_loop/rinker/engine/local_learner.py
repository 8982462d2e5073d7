"""A learner in this process: the engine on a thread of its own, so that the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import LossConfig, Weights
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse

T = TypeVar("T")


class LocalLearner:
    """See `Learner`. Making one loads the model and takes its time; `create` lets the event loop go on meanwhile.

    A call that is cancelled goes on to its end all the same, and the next one waits for it.
    """

    def __init__(self, spec: ModelSpec, settings: EngineSettings | None = None) -> None:
        self._engine: Engine | None = Engine(spec, settings)
        self._spec = spec
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learner")

    @classmethod
    async def create(cls, spec: ModelSpec, settings: EngineSettings | None = None) -> Self:
        """Make one on another thread."""
        return await asyncio.to_thread(cls, spec, settings)

    @property
    def spec(self) -> ModelSpec:
        """What is trained."""
        return self._spec

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None = None, *, forward_only: bool = False
    ) -> ForwardBackwardOutput:
        """See `Learner`."""
        return await self._call(lambda engine: engine.forward_backward(data, loss_fn, config, forward_only=forward_only))

    async def optim_step(self, params: AdamParams) -> OptimStepResponse:
        """See `Learner`."""
        return await self._call(lambda engine: engine.optim_step(params))

    async def save(self, directory: Path, *, optimizer: bool) -> None:
        """See `Learner`."""
        await self._call(lambda engine: engine.save(directory, optimizer=optimizer))

    async def load(self, directory: Path, *, optimizer: bool) -> None:
        """See `Learner`."""
        await self._call(lambda engine: engine.load(directory, optimizer=optimizer))

    async def weights(self) -> Weights:
        """See `Learner`."""
        return await self._call(lambda engine: engine.weights())

    async def close(self) -> None:
        """Wait for the call that runs, if one does, and free the model."""
        self._engine = None  # the calls that are waiting have it still
        await asyncio.to_thread(self._thread.shutdown)

    async def _call(self, work: Callable[[Engine], T]) -> T:
        engine = self._engine
        if engine is None:
            raise RequestFailedError("the model is closed; create it again, from a checkpoint of it", category="user")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, engine)
