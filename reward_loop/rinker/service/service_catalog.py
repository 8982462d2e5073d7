"""What a service answers when its clients ask what there is: the `Catalog` over its checkpoints and its models."""

from __future__ import annotations

import asyncio

from reward_loop.rinker.service.catalog import checkpoints_of, part_of, run_of, weights_info_of
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore
from reward_loop.rinker.service.model_table import ModelTable
from reward_loop.rinker.types import CheckpointsListResponse, TrainingRun, TrainingRunsResponse, WeightsInfoResponse


class ServiceCatalog:
    """A `Catalog` of what is in a store and in a table of models; files are read in threads."""

    def __init__(self, store: CheckpointStore, models: ModelTable) -> None:
        self.store = store
        self._models = models

    async def checkpoints(self, model_id: str) -> CheckpointsListResponse:
        """See `Catalog`."""
        return CheckpointsListResponse(await asyncio.to_thread(checkpoints_of, self.store, model_id))

    async def all_checkpoints(self, *, limit: int, offset: int) -> CheckpointsListResponse:
        """See `Catalog`."""
        found = await asyncio.to_thread(checkpoints_of, self.store)
        return CheckpointsListResponse(*part_of(found, limit=limit, offset=offset))

    async def delete_checkpoint(self, path: str) -> None:
        """See `Catalog`."""
        await asyncio.to_thread(self.store.delete, CheckpointPath.parse(path))

    async def weights_info(self, path: str) -> WeightsInfoResponse:
        """See `Catalog`."""
        return weights_info_of((await asyncio.to_thread(self.store.find, CheckpointPath.parse(path)))[1])

    async def training_run(self, model_id: str) -> TrainingRun:
        """See `Catalog`."""
        return await asyncio.to_thread(run_of, self._models.get(model_id), self.store)

    async def training_runs(self, *, limit: int, offset: int) -> TrainingRunsResponse:
        """See `Catalog`."""
        models = sorted(self._models.all(), key=lambda model: model.used, reverse=True)
        part, cursor = part_of(models, limit=limit, offset=offset)
        return TrainingRunsResponse([await asyncio.to_thread(run_of, model, self.store) for model in part], cursor)
