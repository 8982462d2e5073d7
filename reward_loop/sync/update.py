"""One update of the servers of a model, from its claim to its end.

The order: all servers are claimed, told of the plane and checked before a byte moves; the bytes travel; what every server has
received is compared with what was sent; only then is it committed. Whatever fails or interrupts it before, every server is told
to drop it, and keeps the weights that it serves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from uuid import uuid4

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.committing import Commit, to_the_end
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.planes.plane import TensorCommunicator
from reward_loop.sync.replicas import Replicas
from reward_loop.sync.report import PublishReport
from reward_loop.sync.sending import travelled
from reward_loop.sync.training_mode import RewardModelTrainingMode

logger = logging.getLogger(__name__)

_ABORT_S = 10.0
_MARGIN_S = 10.0
"""Seconds by which a server's session outlives the trainer's own deadline, which gives the better reason."""


@dataclass(frozen=True, slots=True)
class Update:
    """What one update is made of."""

    replicas: Replicas
    served: Mapping[str, int]
    """The version that each server serves."""
    comm: TensorCommunicator
    tensors: Mapping[str, torch.Tensor]
    manifest: Manifest
    mode: RewardModelTrainingMode
    version: int
    timeout_s: float
    """Seconds until everything has been received, and as many again for the commit."""
    drain_timeout_s: float
    session: str = field(default_factory=lambda: uuid4().hex)

    async def run(self, thread: Executor) -> PublishReport:
        """Do it, with everything that blocks in `thread` (one worker); raises WeightSyncError if it is served nowhere."""
        began = time.monotonic()
        try:
            await self._prepare(began + self.timeout_s, thread)
            prepared = time.monotonic()
            await self._transfer(began + self.timeout_s, thread)
            received = time.monotonic()
        except BaseException:  # also cancelled, also interrupted: no server may be left claimed
            await self._abort()
            raise
        finally:
            await asyncio.get_running_loop().run_in_executor(thread, self.comm.close)
        commit = Commit(self.replicas, self.session, _trainer(), self.version, self.served, self.drain_timeout_s, self.timeout_s)
        reports = await to_the_end(commit.run())
        return PublishReport(
            version=self.version,
            training_mode=self.mode,
            plane=self.comm.plane,
            tensors=len(self.manifest.tensors),
            nbytes=self.manifest.nbytes,
            prepare_s=prepared - began,
            transfer_s=received - prepared,
            commit_s=time.monotonic() - received,
            replicas=reports,
        )

    async def _prepare(self, until: float, thread: Executor) -> None:
        await self.replicas.start(self.session, _left(until) + _MARGIN_S, _trainer(), _left(until))
        loop, receivers = asyncio.get_running_loop(), len(self.replicas.urls)
        tickets = await loop.run_in_executor(thread, self.comm.open, self.manifest, receivers, _left(until))
        await self.replicas.init(self.session, tickets, _left(until))
        await self.replicas.prepare(self.session, self.manifest, self.mode, self.version, _left(until))

    async def _transfer(self, until: float, thread: Executor) -> None:
        receiving = self.replicas.transfer(self.session, _left(until))
        sent, received = await travelled(self.comm, self.manifest, self.tensors, receiving, thread)
        wrong = [f"{server} {what}" for server, digests in received.items() if (what := _difference(sent, digests))]
        if wrong:
            raise WeightSyncError(f"what {len(wrong)} servers received is not what was sent: {'; '.join(wrong)}; publish again")

    async def _abort(self) -> None:
        """Have every server drop the update; one that can't be told does it by itself, when its session is over."""
        answers = await self.replicas.abort(self.session, _ABORT_S)
        for answer in answers:
            if not answer.good:
                logger.warning("session=%s could not be aborted: %s", self.session, answer)


def _difference(sent: Sequence[str], received: Sequence[str]) -> str | None:
    """Return how the digests differ, for people."""
    if len(sent) != len(received):
        return f"has {len(received)} of {len(sent)} buckets"
    wrong = [index for index, (here, there) in enumerate(zip(sent, received, strict=True)) if here != there]
    return f"has other bytes in the buckets {wrong[:10]} of {len(sent)}" if wrong else None


def _trainer() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"


def _left(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise WeightSyncError("the update was not done in its time (timeout_s): raise it, or send less")
    return left_s
