"""A model in training, as the service keeps it."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reward_loop.rinker.learner import Learner
from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.service.operation_queue import OperationQueue
from reward_loop.rinker.service.sampling_sessions import Published
from reward_loop.rinker.types import GetInfoResponse, ModelData, ModelSpec


@dataclass(slots=True, eq=False)
class TrainedModel:
    """A learner, its queue, and what was published of its weights."""

    id: str
    spec: ModelSpec
    learner: Learner
    queue: OperationQueue
    version: int = 0
    """Optimiser steps that its weights have behind them."""
    user_metadata: Mapping[str, Any] | None = None
    used: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it was asked for something last."""
    unchanged: Published | None = None
    """The snapshot of its weights as they are, if one was taken."""
    inflight: Published | None = None
    """What its inflight sessions share."""

    @property
    def info(self) -> GetInfoResponse:
        """Describe it."""
        base, lora = self.spec.base_model, self.spec.lora
        return GetInfoResponse(self.id, ModelData(base, base), lora is not None, None if lora is None else lora.rank)

    @contextmanager
    def moving(self, version: int) -> Generator[None]:
        """Note that the block makes its weights others; a block that fails leaves the version as it was."""
        before, self.version = self.version, version
        self.unchanged = None
        try:
            yield
        except Exception:  # whatever failed; not a cancel, for the learner ends what it has begun
            self.version = before
            raise

    async def publish(self, *, inflight: bool) -> Published:
        """Take the weights as they are now; inflight: for every session that shares them, too."""
        if self.unchanged is None or self.unchanged.snapshot is None:
            self.unchanged = Published(await self._snapshot())
        if not inflight:
            return self.unchanged
        if self.inflight is None:
            self.inflight = Published(None)
        self.inflight.snapshot = self.unchanged.snapshot
        return self.inflight

    async def _snapshot(self) -> Snapshot:
        weights = await self.learner.weights()
        # Unique, and not only by version: after load_state the same count of steps can mean other weights.
        return Snapshot(f"{self.id}@{self.version}-{uuid.uuid4().hex}", self.spec.base_model, self.version, weights)
