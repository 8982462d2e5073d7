"""The clients of a run: its service, and the model that it begins or goes on with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.giving_back import gave_back
from reward_loop.rinker.loops.observer import CheckpointRecord, RunResult
from reward_loop.rinker.loops.run_log import read_checkpoints
from reward_loop.rinker.loops.weights_folder import WEIGHTS
from reward_loop.rinker.runtime.build import training_service

logger = logging.getLogger(__name__)


def open_service(config: LoopConfig) -> ServiceClient:
    """Return the service that the configuration names; close it when the run is over."""
    service = config.service
    if service.base_url is not None:
        return ServiceClient(base_url=service.base_url, http=service.http)
    directory = service.checkpoints or config.log_path / WEIGHTS
    engine = service.engine
    if engine.renderer is None:
        engine = engine.model_copy(update={"renderer": config.renderer})
    return ServiceClient(backend=training_service(directory, service.runtime, engine))


def run_to_the_end(config: LoopConfig, run: Callable[[ServiceClient], Coroutine[Any, Any, RunResult]]) -> RunResult:
    """Run with the service that the configuration names, and once more from the last checkpoint when that was lost."""
    restarts, checkpoints = 0, 0
    while True:
        try:
            with open_service(config) as service:
                return asyncio.run(run(service))
        except RequestFailedError as error:
            before, checkpoints = checkpoints, len(read_checkpoints(config.log_path))
            restarts = 1 if checkpoints > before else restarts + 1
            if config.service.base_url is None or error.category != "server" or restarts > config.service.restarts:
                raise
            logger.warning("goes on from the last checkpoint of %s, since the service was lost: %s", config.log_path, error)


@asynccontextmanager
async def training_client(
    service: ServiceClient,
    config: LoopConfig,
    kind: Literal["causal_lm", "seq_cls"],
    checkpoint: CheckpointRecord | None,
    *,
    unload_timeout_s: float = 30.0,
) -> AsyncGenerator[TrainingClient]:
    """Give a client for a new model, or for the one of a checkpoint, with its optimiser; the model is unloaded in the end."""
    client = await _opened(service, config, kind, checkpoint)
    try:
        yield client
    finally:
        await gave_back(client.unload, f"model={client.model_id} is not unloaded", unload_timeout_s)


async def _opened(
    service: ServiceClient, config: LoopConfig, kind: Literal["causal_lm", "seq_cls"], checkpoint: CheckpointRecord | None
) -> TrainingClient:
    if checkpoint is not None:
        return await service.create_training_client_from_state_with_optimizer(checkpoint.state_path)
    return await service.create_training_client(config.model.spec(kind))
