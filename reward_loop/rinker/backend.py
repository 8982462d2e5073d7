"""What is behind the clients: a service in this process, or one that is reached by HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import (
    AdamParams,
    CheckpointsListResponse,
    Datum,
    ForwardBackwardOutput,
    GetInfoResponse,
    GetServerCapabilitiesResponse,
    ModelSpec,
    OptimStepResponse,
    SampleResponse,
    SaveWeightsResponse,
    TrainingRun,
    TrainingRunsResponse,
    WeightsInfoResponse,
)

SamplerKind = Literal["snapshot", "inflight"]
"""snapshot: what is sampled stays as it was saved; inflight: the next save reaches those that sample already."""


@dataclass(frozen=True, slots=True)
class SavedForSampler:
    """Weights to sample from: by name (`path`), or for one sampling session."""

    path: str | None = None
    sampling_session_id: str | None = None


class Backend(Protocol):
    """The operations, as coroutines; cancelling one cancels it.

    What is asked of one model runs in the order of `seq_id` (1, 2, …), whatever the order of arrival; asked again with the same
    `seq_id` it runs once. Raises RequestFailedError.
    """

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        """Say which base models there are."""
        ...

    async def create_model(
        self, spec: ModelSpec, user_metadata: Mapping[str, Any] | None = None, *, model_id: str | None = None
    ) -> str:
        """Return the id of a new model: `model_id`, where that is given."""
        ...

    async def create_model_from_state(
        self,
        path: str,
        *,
        optimizer: bool,
        base_model: str | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        model_id: str | None = None,
    ) -> str:
        """Return the id of a new model that goes on from what was saved at `path`."""
        ...

    async def unload_model(self, model_id: str) -> None:
        """Forget a model; what was saved of it stays."""
        ...

    async def get_info(self, model_id: str) -> GetInfoResponse:
        """Describe a model."""
        ...

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
        """See `Learner.forward_backward`."""
        ...

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        """See `Learner.optim_step`."""
        ...

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
        """Keep weights and optimiser under a name; `overwrite` allows one that is taken."""
        ...

    async def load_state(self, model_id: str, seq_id: int, path: str, *, optimizer: bool) -> None:
        """Go on from what was saved."""
        ...

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
        """Keep the weights as they are now: under a name, or (None) for one sampling session, whose id is returned."""
        ...

    async def create_sampling_session(self, *, model_path: str | None = None, base_model: str | None = None) -> str:
        """Return the id of a session that samples from saved weights, or from a base model."""
        ...

    async def sampling_session_model(self, session_id: str) -> str:
        """Return the base model of a sampling session."""
        ...

    async def close_sampling_session(self, session_id: str) -> None:
        """Forget a sampling session, and its weights if nobody else samples from them; one that is not known is no error."""
        ...

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`."""
        ...

    async def close(self) -> None:
        """End the session; what was saved stays."""
        ...


@runtime_checkable
class Catalog(Protocol):
    """What a backend may be asked besides, if it knows of its checkpoints. Raises RequestFailedError."""

    async def checkpoints(self, model_id: str) -> CheckpointsListResponse:
        """List what was saved of a model, the newest first; nothing of one that never was."""
        ...

    async def all_checkpoints(self, *, limit: int, offset: int) -> CheckpointsListResponse:
        """List what was saved of all models, the newest first."""
        ...

    async def delete_checkpoint(self, path: str) -> None:
        """Remove a checkpoint."""
        ...

    async def weights_info(self, path: str) -> WeightsInfoResponse:
        """Say which model a checkpoint is of."""
        ...

    async def training_run(self, model_id: str) -> TrainingRun:
        """Describe a model in training."""
        ...

    async def training_runs(self, *, limit: int, offset: int) -> TrainingRunsResponse:
        """List the models in training, those that were used last first."""
        ...
