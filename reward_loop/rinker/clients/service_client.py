"""Where a script begins: make models to train, and clients to sample with."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from reward_loop.errors import ConfigError
from reward_loop.rinker.backend import Backend
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.client_future import ClientFuture
from reward_loop.rinker.clients.connection import Connection
from reward_loop.rinker.clients.rest_client import RestClient
from reward_loop.rinker.clients.sampling_client import SamplingClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.types import GetServerCapabilitiesResponse, LoraConfig, ModelSpec
from reward_loop.rinker.types.model_spec import ModelKind

if TYPE_CHECKING:
    from reward_loop.rinker.engine.settings import EngineSettings
    from reward_loop.rinker.remote.settings import HttpSettings
    from reward_loop.rinker.sampler import Sampler
    from reward_loop.rinker.sampling.settings import HFSamplerSettings
    from reward_loop.rinker.service.settings import ServiceSettings

C = TypeVar("C")
CloseStatus = Literal["success", "errored", "interrupted"]


class ServiceClient:
    """Of a server (`base_url`, else TINKER_BASE_URL), or, where neither names one, of a service in this process.

    That has its models, its sampler and its checkpoints here: `checkpoint_dir`, `engine`, `sampler` and `limits` are its
    settings; `http` says how patient a client of a server is. `backend` takes the place of both. Use it as a context manager, or
    `close` it: what still runs ends then. `project_id`, `display_name` and `default_headers_overrides` have no effect.
    """

    def __init__(
        self,
        user_metadata: dict[str, str] | None = None,
        project_id: str | None = None,
        *,
        display_name: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        default_headers_overrides: Mapping[str, str] | None = None,
        backend: Backend | None = None,
        checkpoint_dir: str | Path = "checkpoints",
        engine: EngineSettings | None = None,
        sampler: Sampler | HFSamplerSettings | None = None,
        limits: ServiceSettings | None = None,
        chunks: ChunkLimits | None = None,
        http: HttpSettings | None = None,
    ) -> None:
        base_url = base_url or (os.environ.get("TINKER_BASE_URL") if backend is None else None)
        if base_url is not None and (backend or engine or sampler or limits):
            given = "backend, engine, sampler and limits are of a service in this process"
            raise ConfigError(f"{given}, and base_url={base_url!r} names a server; give one or the other")
        self._user_metadata = user_metadata
        self._chunks = chunks

        def make() -> Backend:
            return backend or _backend(base_url, api_key, http, checkpoint_dir, engine, sampler, limits)

        self._make = make
        self._made: Connection | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error_type is None:
            self.close("success").result()
        else:
            self.close("errored" if issubclass(error_type, Exception) else "interrupted").result()

    def close(self, status: CloseStatus = "success", detail: str | None = None) -> APIFuture[None]:
        """End the session: cancel what runs, and free the models of a service in this process. A second call does nothing."""
        return self._connection.close()

    def create_training_client(
        self,
        base_model: str | ModelSpec,
        *,
        kind: ModelKind = "causal_lm",
        lora: LoraConfig | None = None,
        num_labels: int = 1,
        seed: int | None = None,
        user_metadata: dict[str, str] | None = None,
    ) -> ClientFuture[TrainingClient]:
        """Train a model of any kind, all of its weights unless `lora` is given. The SDK has no such method."""
        spec = base_model if isinstance(base_model, ModelSpec) else ModelSpec(base_model, kind, lora, num_labels, seed)
        return self._start(self._create(spec, user_metadata))

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
        optimizer: object = None,
    ) -> ClientFuture[TrainingClient]:
        """Train adapters of a language model; `optimizer` has no effect: it is Adam."""
        lora = LoraConfig(rank, seed, train_unembed=train_unembed, train_mlp=train_mlp, train_attn=train_attn)
        return self._start(self._create(ModelSpec(base_model, lora=lora, seed=seed), user_metadata))

    async def create_lora_training_client_async(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
        optimizer: object = None,
    ) -> TrainingClient:
        """`await create_lora_training_client(…)`."""
        return await self.create_lora_training_client(
            base_model, rank, seed, train_mlp, train_attn, train_unembed, user_metadata, optimizer
        )

    def create_training_client_from_state(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
        optimizer: object = None,
    ) -> ClientFuture[TrainingClient]:
        """Train on from saved weights; the optimiser begins anew. `weights_access_token` and `optimizer` have no effect."""
        return self._start(self._from_state(path, base_model, user_metadata, optimizer=False))

    async def create_training_client_from_state_async(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
        optimizer: object = None,
    ) -> TrainingClient:
        """`await create_training_client_from_state(…)`."""
        return await self.create_training_client_from_state(path, base_model, user_metadata, weights_access_token, optimizer)

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
    ) -> ClientFuture[TrainingClient]:
        """Train on from saved weights with the optimiser as it was, as if nothing had been between."""
        return self._start(self._from_state(path, base_model, user_metadata, optimizer=True))

    async def create_training_client_from_state_with_optimizer_async(
        self,
        path: str,
        base_model: str | None = None,
        user_metadata: dict[str, str] | None = None,
        weights_access_token: str | None = None,
    ) -> TrainingClient:
        """`await create_training_client_from_state_with_optimizer(…)`."""
        return await self.create_training_client_from_state_with_optimizer(path, base_model, user_metadata, weights_access_token)

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: object = None,
        record_stability_info: bool = False,
    ) -> ClientFuture[SamplingClient]:
        """Sample from saved weights or a base model; the other arguments have no effect. Raises ValueError without either."""
        if model_path is None and base_model is None:
            raise ValueError("give model_path or base_model")
        return self._start(SamplingClient.open(self._connection, model_path=model_path, base_model=base_model))

    async def create_sampling_client_async(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        retry_config: object = None,
        record_stability_info: bool = False,
    ) -> SamplingClient:
        """`await create_sampling_client(…)`."""
        return await self.create_sampling_client(model_path, base_model, retry_config, record_stability_info)

    def create_rest_client(self) -> RestClient:
        """Return a client for what is not training or sampling, of the same service."""
        return RestClient(self._connection)

    def get_server_capabilities(self) -> GetServerCapabilitiesResponse:
        """Return what the service offers."""
        return self.create_rest_client().get_server_capabilities().result()

    async def get_server_capabilities_async(self) -> GetServerCapabilitiesResponse:
        """`get_server_capabilities()`, awaited."""
        return await self.create_rest_client().get_server_capabilities()

    @property
    def _connection(self) -> Connection:
        with self._lock:
            if self._made is None:
                self._made = Connection(self._make())
            return self._made

    def _start(self, call: Coroutine[Any, Any, C]) -> ClientFuture[C]:
        return ClientFuture(self._connection.start(call).future())

    async def _create(self, spec: ModelSpec, user_metadata: dict[str, str] | None) -> TrainingClient:
        model_id = await self._connection.backend.create_model(spec, user_metadata or self._user_metadata)
        return await self._client(model_id)

    async def _from_state(
        self, path: str, base_model: str | None, user_metadata: dict[str, str] | None, *, optimizer: bool
    ) -> TrainingClient:
        metadata = user_metadata or self._user_metadata
        model_id = await self._connection.backend.create_model_from_state(
            path, optimizer=optimizer, base_model=base_model, user_metadata=metadata
        )
        return await self._client(model_id)

    async def _client(self, model_id: str) -> TrainingClient:
        info = await self._connection.backend.get_info(model_id)
        return TrainingClient(self._connection, model_id, info=info, limits=self._chunks)


def _backend(
    base_url: str | None,
    api_key: str | None,
    http: HttpSettings | None,
    checkpoint_dir: str | Path,
    engine: EngineSettings | None,
    sampler: Sampler | HFSamplerSettings | None,
    limits: ServiceSettings | None,
) -> Backend:
    # Imported where they are needed: a client of a server loads no engine, and one in this process no HTTP.
    if base_url is not None:
        from reward_loop.rinker.clients.remote_backend import remote_backend

        return remote_backend(base_url, api_key, http)
    from reward_loop.rinker.clients.in_process import local_service

    return local_service(checkpoint_dir, engine, sampler, limits)
