"""What is asked of a service besides training and sampling."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from reward_loop.errors import ConfigError, RequestFailedError
from reward_loop.rinker.backend import Catalog
from reward_loop.rinker.clients.connection import Connection
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.types import (
    CheckpointsListResponse,
    GetServerCapabilitiesResponse,
    TrainingRun,
    TrainingRunsResponse,
    WeightsInfoResponse,
)

T = TypeVar("T")


class RestClient:
    """Of a server (`base_url`, else TINKER_BASE_URL); `ServiceClient.create_rest_client` makes one of a service in this process.

    What is not there is RequestFailedError("user"). Use one that you made yourself as a context manager, or `close` it.
    """

    def __init__(self, _connection: Connection | None = None, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._owned = _connection is None
        self._connection = _connection or _connected(base_url or os.environ.get("TINKER_BASE_URL"), api_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to a server, unless they are those of a ServiceClient. The SDK has no such method."""
        if self._owned:
            self._connection.close().result()

    def get_server_capabilities(self) -> APIFuture[GetServerCapabilitiesResponse]:
        """Ask which models the service offers."""
        return self._connection.start(self._connection.backend.capabilities())

    def list_checkpoints(self, training_run_id: str) -> APIFuture[CheckpointsListResponse]:
        """List what was saved of a model, the newest first."""
        return self._ask(lambda catalog: catalog.checkpoints(training_run_id))

    async def list_checkpoints_async(self, training_run_id: str) -> CheckpointsListResponse:
        """`await list_checkpoints(…)`."""
        return await self.list_checkpoints(training_run_id)

    def list_user_checkpoints(self, limit: int = 100, offset: int = 0) -> APIFuture[CheckpointsListResponse]:
        """List what was saved of all models, the newest first."""
        return self._ask(lambda catalog: catalog.all_checkpoints(limit=limit, offset=offset))

    async def list_user_checkpoints_async(self, limit: int = 100, offset: int = 0) -> CheckpointsListResponse:
        """`await list_user_checkpoints(…)`."""
        return await self.list_user_checkpoints(limit, offset)

    def list_training_runs(self, limit: int = 20, offset: int = 0) -> APIFuture[TrainingRunsResponse]:
        """List the models in training, those that were used last first."""
        return self._ask(lambda catalog: catalog.training_runs(limit=limit, offset=offset))

    async def list_training_runs_async(self, limit: int = 20, offset: int = 0) -> TrainingRunsResponse:
        """`await list_training_runs(…)`."""
        return await self.list_training_runs(limit, offset)

    def get_training_run(self, training_run_id: str) -> APIFuture[TrainingRun]:
        """Describe a model in training."""
        return self._ask(lambda catalog: catalog.training_run(training_run_id))

    async def get_training_run_async(self, training_run_id: str) -> TrainingRun:
        """`await get_training_run(…)`."""
        return await self.get_training_run(training_run_id)

    def get_training_run_by_tinker_path(self, tinker_path: str) -> APIFuture[TrainingRun]:
        """Describe the model in training that a checkpoint was saved of."""
        return self._ask(lambda catalog: catalog.training_run(CheckpointPath.parse(tinker_path).model_id))

    async def get_training_run_by_tinker_path_async(self, tinker_path: str) -> TrainingRun:
        """`await get_training_run_by_tinker_path(…)`."""
        return await self.get_training_run_by_tinker_path(tinker_path)

    def get_weights_info_by_tinker_path(self, tinker_path: str) -> APIFuture[WeightsInfoResponse]:
        """Say which model a checkpoint is of."""
        return self._ask(lambda catalog: catalog.weights_info(tinker_path))

    def delete_checkpoint(self, training_run_id: str, checkpoint_id: str) -> APIFuture[None]:
        """Remove a checkpoint, by its id as a list gives it (`weights/NAME`)."""
        return self.delete_checkpoint_from_tinker_path(f"tinker://{training_run_id}/{checkpoint_id}")

    async def delete_checkpoint_async(self, training_run_id: str, checkpoint_id: str) -> None:
        """`await delete_checkpoint(…)`."""
        await self.delete_checkpoint(training_run_id, checkpoint_id)

    def delete_checkpoint_from_tinker_path(self, tinker_path: str) -> APIFuture[None]:
        """Remove a checkpoint, by its path."""
        return self._ask(lambda catalog: catalog.delete_checkpoint(tinker_path))

    async def delete_checkpoint_from_tinker_path_async(self, tinker_path: str) -> None:
        """`await delete_checkpoint_from_tinker_path(…)`."""
        await self.delete_checkpoint_from_tinker_path(tinker_path)

    def _ask(self, question: Callable[[Catalog], Awaitable[T]]) -> APIFuture[T]:
        async def asked() -> T:
            backend = self._connection.backend
            if not isinstance(backend, Catalog):
                raise RequestFailedError(f"{type(backend).__name__} has no list of its checkpoints", category="user")
            return await question(backend)

        return self._connection.start(asked())


def _connected(base_url: str | None, api_key: str | None) -> Connection:
    if base_url is None:
        raise ConfigError(
            "RestClient() needs base_url or TINKER_BASE_URL; in this process use ServiceClient.create_rest_client()"
        )
    from reward_loop.rinker.clients.remote_backend import remote_backend

    return Connection(remote_backend(base_url, api_key))
