"""A loss of the caller's own: two passes of the model, with the caller's function between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from reward_loop.rinker.clients import chunks
from reward_loop.rinker.clients.chunks import ChunkLimits
from reward_loop.rinker.clients.model_operations import ModelOperations
from reward_loop.rinker.clients.turns import Gate, Turn
from reward_loop.rinker.engine.custom_loss import SURROGATE, CustomLossFn, forward_data, linearised
from reward_loop.rinker.types import Datum, ForwardBackwardOutput


class CustomPass:
    """One call of forward_backward_custom, whose data are cut once: both passes have the same chunks."""

    def __init__(self, model: ModelOperations, data: Sequence[Datum], loss_fn: CustomLossFn, limits: ChunkLimits) -> None:
        self._model = model
        self._data = list(data)
        self._loss_fn = loss_fn
        self._parts = chunks.split(forward_data(self._data), limits)

    @property
    def operations(self) -> int:
        """How many numbers both passes take."""
        return 2 * len(self._parts)

    async def run(self, turn: Turn, gate: Gate) -> ForwardBackwardOutput:
        """Do both passes, by the first and the second half of the turn's numbers; open the gate as the second is sent."""
        first, second = turn.seq_ids[: len(self._parts)], turn.seq_ids[len(self._parts) :]
        try:
            await turn.come()
            scored = await self._model.forward_backward(first, self._parts, SURROGATE, forward_only=True)
            # In a thread: the function is the caller's, and the loop is everybody's.
            linear = await asyncio.to_thread(linearised, self._data, scored.loss_fn_outputs, self._loss_fn)
        except BaseException as error:  # cancelled too: whatever waits behind this must learn of it
            gate.shut(error)
            raise
        gate.open()
        return linear.output(await self._model.forward_backward(second, list(self._cut(linear.data)), SURROGATE))

    def _cut(self, data: Sequence[Datum]) -> Iterator[Sequence[Datum]]:
        # Not by size again: weights take another room than zeros, and the numbers are given out already.
        begin = 0
        for part in self._parts:
            yield data[begin : begin + len(part)]
            begin += len(part)
