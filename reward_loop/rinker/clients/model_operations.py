"""The operations of one model at the backend, by their numbers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from reward_loop.errors import RequestFailedError, TrainingError
from reward_loop.rinker.backend import Backend
from reward_loop.rinker.clients import chunks
from reward_loop.rinker.clients.turns import Turn
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.types import Datum, ForwardBackwardOutput


class ModelOperations:
    """Sends what a training client was asked."""

    def __init__(self, backend: Backend, model_id: str) -> None:
        self.backend = backend
        self.model_id = model_id

    async def forward_backward(
        self,
        seq_ids: range,
        parts: Sequence[Sequence[Datum]],
        loss_fn: str,
        config: LossConfig | None = None,
        *,
        forward_only: bool = False,
    ) -> ForwardBackwardOutput:
        """Send the parts of one call, each under its number, and join what comes back. The first that fails is raised."""
        calls = [
            self.backend.forward_backward(self.model_id, seq_id, part, loss_fn, config, forward_only=forward_only)
            for seq_id, part in zip(seq_ids, parts, strict=True)
        ]
        if len(calls) == 1:
            return await calls[0]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(call) for call in calls]
        except BaseExceptionGroup as failed:
            # The others are cancelled: the part that failed is missing from the gradients whatever becomes of them.
            raise failed.exceptions[0] from failed
        return chunks.join([task.result() for task in tasks])

    async def leave(self, turn: Turn) -> None:
        """Fill the numbers of a call that was cancelled before it was sent: those behind it would wait for them."""
        if turn.has_come:
            return  # then the backend has been asked, and sees to it itself
        try:
            await turn.come()
        except RequestFailedError:
            return  # nothing is sent any more
        for seq_id in turn.seq_ids:
            # Passes over nothing change nothing; whether they fail is no matter, for the backend counts them as come.
            with contextlib.suppress(TrainingError):
                await self.backend.forward_backward(self.model_id, seq_id, (), "cross_entropy", None, forward_only=True)
