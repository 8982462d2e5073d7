"""The models that are in training: made by the factory of their learners, as many as the limit allows."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.learner import Learner
from reward_loop.rinker.service.checkpoint_path import checked_name
from reward_loop.rinker.service.failures import as_request_failures
from reward_loop.rinker.service.model import TrainedModel
from reward_loop.rinker.service.operation_queue import OperationQueue
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.types import ModelSpec

LearnerFactory = Callable[[ModelSpec], Learner | Awaitable[Learner]]
"""Makes what trains a model. A plain function runs in a thread, since models take a while to load; a coroutine is awaited."""


class ModelTable:
    """The models by their ids. Of one event loop."""

    def __init__(self, learner_factory: LearnerFactory, settings: ServiceSettings) -> None:
        self._learner_factory = learner_factory
        self._settings = settings
        self._models: dict[str, TrainedModel] = {}
        self._making: set[str] = set()

    def all(self) -> list[TrainedModel]:
        """Return the models, the oldest first."""
        return list(self._models.values())

    def get(self, model_id: str) -> TrainedModel:
        """Return a model. Raises RequestFailedError("user") where there is none of this id."""
        if model_id not in self._models:
            raise RequestFailedError(f"there is no model {model_id}; it was never made, or was unloaded", category="user")
        return self._models[model_id]

    async def add(
        self,
        spec: ModelSpec,
        model_id: str | None,
        user_metadata: Mapping[str, Any] | None,
        load: Callable[[Learner], Awaitable[int]] | None = None,
    ) -> str:
        """Make a model, have `load` put a state into it (which returns its version), and return its id."""
        self.check_offered(spec.base_model)
        model_id = f"model-{uuid.uuid4().hex[:12]}" if model_id is None else checked_name(model_id, "model id")
        self._check_room(model_id)
        self._making.add(model_id)
        try:
            with as_request_failures(f"creating a model on {spec.base_model}"):
                learner = await self.learner(spec)
                version = 0 if load is None else await _or_close(learner, load(learner))
        finally:
            self._making.remove(model_id)
        self._models[model_id] = TrainedModel(model_id, spec, learner, self._queue(model_id), version, user_metadata)
        return model_id

    async def remove(self, model_id: str) -> None:
        """Free a model; what waits for it fails."""
        model = self.get(model_id)
        del self._models[model_id]
        model.queue.close()
        with as_request_failures(f"unloading {model_id}"):
            await model.learner.close()

    async def learner(self, spec: ModelSpec) -> Learner:
        """Make a learner, which whoever asks has to close."""
        if inspect.iscoroutinefunction(self._learner_factory):
            promised: Learner | Awaitable[Learner] = self._learner_factory(spec)
        else:
            promised = await asyncio.to_thread(self._learner_factory, spec)
        return await promised if inspect.isawaitable(promised) else promised

    def check_offered(self, base_model: str) -> None:
        """Raise RequestFailedError("user") for a base model that is not among those of the settings."""
        offered = self._settings.base_models
        if offered and base_model not in offered:
            raise RequestFailedError(f"base model {base_model!r} is not offered; there are {', '.join(offered)}", category="user")

    def _check_room(self, model_id: str) -> None:
        if model_id in self._models or model_id in self._making:
            raise RequestFailedError(f"there is a model {model_id} already", category="user")
        if len(self._models) + len(self._making) >= self._settings.max_models:
            limit = f"{self._settings.max_models} models are in training, which is the limit"
            raise RequestFailedError(f"{limit}; unload one, or raise max_models", category="user")

    def _queue(self, model_id: str) -> OperationQueue:
        limits = self._settings
        return OperationQueue(
            model_id, gap_timeout_s=limits.gap_timeout_s, max_waiting=limits.max_waiting, max_results=limits.max_results
        )


async def _or_close(learner: Learner, loading: Awaitable[int]) -> int:
    try:
        return await loading
    except BaseException:  # cancelled too: nobody else would free what it holds
        await learner.close()
        raise
