"""The service: models, what was saved of them, and who samples from what.

Invariants: the operations of a model run in the order of their numbers, those of different models at the same time; an operation
that fails changes nothing for those behind it; nothing is sampled from a mixture of two states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.backend import SamplerKind, SavedForSampler
from reward_loop.rinker.learner import Learner, LossConfig
from reward_loop.rinker.sampler import SampleCall, Sampler, Snapshot
from reward_loop.rinker.sampling.profile import read_profile
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore, Saved
from reward_loop.rinker.service.failures import as_request_failures
from reward_loop.rinker.service.model import TrainedModel
from reward_loop.rinker.service.model_table import LearnerFactory, ModelTable
from reward_loop.rinker.service.sampler_weights import write_sampler_weights
from reward_loop.rinker.service.sampling_sessions import Published, SamplingSessions
from reward_loop.rinker.service.service_catalog import ServiceCatalog
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.types import (
    AdamParams,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    GetServerCapabilitiesResponse,
    ModelSpec,
    OptimStepResponse,
    SampleResponse,
    SaveWeightsResponse,
    SupportedModel,
)

T = TypeVar("T")


class TrainingService(ServiceCatalog):
    """A `Backend` and a `Catalog` over learners and a sampler of any kind. Of one event loop."""

    def __init__(
        self,
        learner_factory: LearnerFactory,
        sampler: Sampler,
        store: CheckpointStore,
        settings: ServiceSettings | None = None,
    ) -> None:
        self._sampler = sampler
        self._settings = settings or ServiceSettings()
        super().__init__(store, ModelTable(learner_factory, self._settings))
        self._closed = False
        self._sessions = SamplingSessions(
            max_sessions=self._settings.max_sampling_sessions, max_snapshots=self._settings.max_snapshots
        )

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        """See `Backend`: the models that are offered, or, where any is, those that are trained now."""
        names = self._settings.base_models or dict.fromkeys(model.spec.base_model for model in self._models.all())
        profiles = [await self._profile(name) for name in names]
        return GetServerCapabilitiesResponse([SupportedModel(profile.name, profile.context) for profile in profiles])

    async def create_model(
        self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, *, model_id: str | None = None
    ) -> str:
        """See `Backend`."""
        self._check_open()
        return await self._models.add(spec, model_id, user_metadata)

    async def create_model_from_state(
        self,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        model_id: str | None = None,
    ) -> str:
        """See `Backend`; `base_model` takes the place of the one that is noted in the checkpoint."""
        self._check_open()
        folder, saved = self.store.find(_trainable(path))
        spec = saved.spec if base_model is None else replace(saved.spec, base_model=base_model)

        async def load(learner: Learner) -> int:
            await learner.load(folder, optimizer=optimizer)
            return saved.version

        return await self._models.add(spec, model_id, user_metadata, load)

    async def unload_model(self, model_id: str) -> None:
        """See `Backend`; what waits for the model fails."""
        self._check_open()
        await self._models.remove(model_id)

    async def get_info(self, model_id: str) -> GetInfoResponse:
        """See `Backend`."""
        self._check_open()
        return self._models.get(model_id).info

    def models(self) -> list[TrainedModel]:
        """Return what is in training now."""
        return self._models.all()

    async def forward_backward(
        self,
        model_id: str,
        seq_id: int,
        data: Sequence[Datum],
        loss_fn: str,
        config: LossConfig | None = None,
        *,
        forward_only: bool = False,
    ) -> ForwardBackwardOutput:
        """See `Backend`."""

        def forward(model: TrainedModel) -> Awaitable[ForwardBackwardOutput]:
            return model.learner.forward_backward(data, loss_fn, config, forward_only=forward_only)

        return await self._run(model_id, seq_id, "forward_backward", forward)

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        """See `Backend`."""

        async def step(model: TrainedModel) -> OptimStepResponse:
            with model.moving(model.version + 1):
                return await model.learner.optim_step(params)

        return await self._run(model_id, seq_id, "optim_step", step)

    async def save_state(
        self,
        model_id: str,
        seq_id: int,
        name: str,
        *,
        overwrite: bool = False,
        ttl_seconds: int | None = None,
        user_metadata: Mapping[str, str] | None = None,
    ) -> SaveWeightsResponse:
        """See `Backend`."""

        async def save(model: TrainedModel) -> SaveWeightsResponse:
            path = CheckpointPath(model_id, "weights", name)
            saved = Saved(model.spec, model.version, ttl_seconds=ttl_seconds, user_metadata=user_metadata)
            async with self.store.writing(path, saved, overwrite=overwrite) as folder:
                await model.learner.save(folder, optimizer=True)
            return SaveWeightsResponse(str(path))

        return await self._run(model_id, seq_id, "save_state", save)

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        """See `Backend`."""

        async def load(model: TrainedModel) -> None:
            folder, saved = self.store.find(_trainable(path))
            with model.moving(saved.version):
                await model.learner.load(folder, optimizer=optimizer)

        await self._run(model_id, seq_id, "load_state", load)

    async def save_weights_for_sampler(
        self,
        model_id: str,
        seq_id: int,
        name: str | None,
        kind: SamplerKind = "snapshot",
        *,
        ttl_seconds: int | None = None,
        user_metadata: Mapping[str, str] | None = None,
    ) -> SavedForSampler:
        """See `Backend`; a name that is taken is refused."""

        async def save(model: TrainedModel) -> SavedForSampler:
            if name is None:
                _check_writes(model.spec)
                return SavedForSampler(sampling_session_id=self._sessions.open(await model.publish(inflight=kind == "inflight")))
            path = CheckpointPath(model_id, "sampler_weights", name)
            saved = Saved(model.spec, model.version, ttl_seconds=ttl_seconds, user_metadata=user_metadata)
            async with self.store.writing(path, saved, overwrite=False) as folder:
                weights = await model.learner.weights()
                trust = self._settings.trust_remote_code
                await asyncio.to_thread(write_sampler_weights, weights, model.spec, folder, trust_remote_code=trust)
            return SavedForSampler(path=str(path))

        return await self._run(model_id, seq_id, "save_weights_for_sampler", save)

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        """See `Backend`; `model_path` goes before `base_model`, and may be of either folder."""
        self._check_open()
        with as_request_failures("create_sampling_session"):
            return self._sessions.open(Published(await self._saved_snapshot(model_path, base_model)))

    async def sampling_session_model(self, session_id: str) -> str:
        """See `Backend`."""
        return self._sessions.snapshot(session_id).base_model

    async def close_sampling_session(self, session_id: str) -> None:
        """Forget a session, and its weights if nobody else samples from them."""
        self._sessions.close(session_id)

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Backend`."""
        self._check_open()
        snapshot = self._sessions.snapshot(session_id)
        with as_request_failures("sample"):
            return await self._sampler.sample(snapshot, call)

    async def close(self) -> None:
        """See `Backend`; a second call does nothing. Raises the first failure, once it has closed all it can."""
        if self._closed:
            return
        self._closed = True
        closing: list[Callable[[], Awaitable[None]]] = [partial(self._models.remove, model.id) for model in self._models.all()]
        failures: list[BaseException] = []
        for close in (*closing, self._sampler.close):
            try:
                await close()
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, the rest is closed
                failures.append(error)
        if failures:
            raise failures[0]

    async def _run(self, model_id: str, seq_id: int, what: str, operation: Callable[[TrainedModel], Awaitable[T]]) -> T:
        self._check_open()
        model = self._models.get(model_id)
        model.used = datetime.now(UTC)

        async def run() -> T:
            with as_request_failures(f"{what} of {model_id}"):
                return await operation(model)

        return await model.queue.run(seq_id, run)

    async def _saved_snapshot(self, model_path: str | None, base_model: str | None) -> Snapshot:
        if model_path is None:
            if base_model is None:
                raise RequestFailedError("give model_path or base_model to sample from", category="user")
            self._models.check_offered(base_model)
            await self._profile(base_model)
            return Snapshot(base_model, base_model)
        path = CheckpointPath.parse(model_path)
        folder, saved = self.store.find(path)
        _check_writes(saved.spec)
        name = f"{path}@{saved.time}"
        if path.folder == "sampler_weights":
            return Snapshot(name, saved.spec.base_model, saved.version, folder)
        learner = await self._models.learner(saved.spec)
        try:
            await learner.load(folder, optimizer=False)
            return Snapshot(name, saved.spec.base_model, saved.version, await learner.weights())
        finally:
            await learner.close()

    async def _profile(self, base_model: str) -> Any:
        return await asyncio.to_thread(read_profile, base_model, trust_remote_code=self._settings.trust_remote_code)

    def _check_open(self) -> None:
        if self._closed:
            raise RequestFailedError("the service is closed", category="user")


def _trainable(path: str) -> CheckpointPath:
    parsed = CheckpointPath.parse(path)
    if parsed.folder != "weights":
        raise RequestFailedError(f"{path} can only be sampled from; train on from what save_state() returned", category="user")
    return parsed


def _check_writes(spec: ModelSpec) -> None:
    if spec.kind != "causal_lm":
        raise RequestFailedError(f"a model of the kind {spec.kind} writes no text: it can't be sampled from", category="user")
