"""A long list of data in several operations, and their results as those of one.

Losses are sums, so that the gradients of the parts add up to those of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reward_loop.rinker.losses.metrics import joined_metrics
from reward_loop.rinker.types import Datum, ForwardBackwardOutput

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How much one operation carries; a datum that is larger goes alone."""

    max_data: int = 1024
    max_bytes: int = 5_000_000


def split(data: Sequence[Datum], limits: ChunkLimits) -> list[list[Datum]]:
    """Cut the data where a chunk would be too large, in their order. Raises ValueError where there are none."""
    if not data:
        raise ValueError("no data: give at least one Datum")
    chunks: list[list[Datum]] = []
    size = 0
    for datum in data:
        more = _size(datum)
        if not chunks or len(chunks[-1]) >= limits.max_data or size + more > limits.max_bytes:
            chunks.append([])
            size = 0
        chunks[-1].append(datum)
        size += more
    return chunks


def join(outputs: Sequence[ForwardBackwardOutput]) -> ForwardBackwardOutput:
    """Put the results of chunks behind each other."""
    if len(outputs) == 1:
        return outputs[0]
    rows = [row for output in outputs for row in output.loss_fn_outputs]
    return ForwardBackwardOutput(
        outputs[0].loss_fn_output_type,
        rows,
        joined_metrics([(output.metrics, len(output.loss_fn_outputs)) for output in outputs]),
    )


def _size(datum: Datum) -> int:
    return datum.model_input.length * _TOKEN_BYTES + sum(tensor.nbytes for tensor in datum.loss_fn_inputs.values())
