"""What was saved, and of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

CheckpointType = Literal["training", "sampler"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint; `checkpoint_id` is what stands behind the model in its path: `weights/NAME`."""

    checkpoint_id: str
    checkpoint_type: CheckpointType
    time: datetime
    tinker_path: str
    size_bytes: int | None = None
    public: bool = False
    user_metadata: Mapping[str, str] | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Which part of a list was returned."""

    offset: int
    limit: int
    total_count: int


@dataclass(frozen=True, slots=True)
class CheckpointsListResponse:
    """Checkpoints; the cursor is there where only some were asked for."""

    checkpoints: Sequence[Checkpoint]
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A model in training."""

    training_run_id: str
    base_model: str
    model_owner: str
    is_lora: bool
    last_request_time: datetime
    corrupted: bool = False
    lora_rank: int | None = None
    last_checkpoint: Checkpoint | None = None
    last_sampler_checkpoint: Checkpoint | None = None
    user_metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TrainingRunsResponse:
    """Models in training."""

    training_runs: Sequence[TrainingRun]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class WeightsInfoResponse:
    """Which model a checkpoint is of."""

    base_model: str
    is_lora: bool
    lora_rank: int | None = None
    train_unembed: bool | None = None
    train_mlp: bool | None = None
    train_attn: bool | None = None
