"""What a service has, as its clients list it: checkpoints and models in training."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore, Saved
from reward_loop.rinker.service.model import TrainedModel
from reward_loop.rinker.types import Checkpoint, Cursor, TrainingRun, WeightsInfoResponse

T = TypeVar("T")


def part_of(found: Sequence[T], *, limit: int, offset: int) -> tuple[Sequence[T], Cursor]:
    """Return a part of a list, and which it is. Raises RequestFailedError("user")."""
    if limit < 0 or offset < 0:
        raise RequestFailedError(f"limit={limit} and offset={offset} must be 0 or more", category="user")
    return found[offset : offset + limit], Cursor(offset, limit, len(found))


def checkpoints_of(store: CheckpointStore, model_id: str | None = None) -> list[Checkpoint]:
    """List what was saved of a model, or of all, the newest first."""
    found = [_checkpoint(path, saved, store.find(path)[0]) for path, saved in store.all(model_id)]
    return sorted(found, key=lambda one: one.time, reverse=True)


def run_of(model: TrainedModel, store: CheckpointStore) -> TrainingRun:
    """Describe a model in training, with what was saved of it last."""
    newest: dict[str, Checkpoint] = {}
    for one in checkpoints_of(store, model.id):
        newest.setdefault(one.checkpoint_type, one)
    info = model.info
    return TrainingRun(
        model.id,
        info.model_data.model_name,
        "local",
        info.is_lora,
        model.used,
        lora_rank=info.lora_rank,
        last_checkpoint=newest.get("training"),
        last_sampler_checkpoint=newest.get("sampler"),
        user_metadata=model.user_metadata,
    )


def weights_info_of(saved: Saved) -> WeightsInfoResponse:
    """Say which model a checkpoint is of."""
    lora = saved.spec.lora
    if lora is None:
        return WeightsInfoResponse(saved.spec.base_model, False)
    return WeightsInfoResponse(saved.spec.base_model, True, lora.rank, lora.train_unembed, lora.train_mlp, lora.train_attn)


def _checkpoint(path: CheckpointPath, saved: Saved, folder: Path) -> Checkpoint:
    time = datetime.fromisoformat(saved.time)
    return Checkpoint(
        f"{path.folder}/{path.name}",
        "training" if path.folder == "weights" else "sampler",
        time,
        str(path),
        sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        user_metadata=saved.user_metadata,
        expires_at=None if saved.ttl_seconds is None else time + timedelta(seconds=saved.ttl_seconds),
    )
