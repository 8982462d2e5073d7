"""A service whose learners do as a test says, and which can't sample."""

from __future__ import annotations

from pathlib import Path

from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore, Saved
from reward_loop.rinker.service.training_service import TrainingService
from reward_loop.rinker.types import SampleResponse
from tests.rinker.service.scripted_learner import ScriptedLearner


class NoSampler:
    """Is never asked."""

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def scripted_service(directory: Path) -> TrainingService:
    """Return a service that keeps its checkpoints below `directory`."""
    return TrainingService(ScriptedLearner, NoSampler(), CheckpointStore(directory))


async def kept_for_sampler(service: TrainingService, model_id: str, name: str) -> None:
    """Keep what a sampler would read, without the base model that this takes of a real one."""
    [model] = [model for model in service.models() if model.id == model_id]
    path = CheckpointPath(model_id, "sampler_weights", name)
    async with service.store.writing(path, Saved(model.spec, model.version), overwrite=False) as folder:
        await model.learner.save(folder, optimizer=False)
