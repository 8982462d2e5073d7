"""A service in this process, for clients that name no server."""

from __future__ import annotations

from pathlib import Path

from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.build import training_service
from reward_loop.rinker.sampler import Sampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.service.training_service import TrainingService


def local_service(
    checkpoint_dir: str | Path,
    engine: EngineSettings | None = None,
    sampler: Sampler | HFSamplerSettings | None = None,
    settings: ServiceSettings | None = None,
) -> TrainingService:
    """Build a service whose models train in threads of this process, and whose sampler is transformers' or the one given."""
    return training_service(checkpoint_dir, engine=engine, sampler=sampler, limits=settings)
