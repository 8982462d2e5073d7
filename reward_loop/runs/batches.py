"""From the rows of a rollout file to the batches that a reward loop scores, and back to the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import torch

from reward_loop.data import DataProto
from reward_loop.errors import DataError
from reward_loop.loop import RewardLoopManager
from reward_loop.outcome import Outcome
from reward_loop.runs.fields import FieldMap, Row, RowError, look_up
from reward_loop.runs.source import Chunk, batch_columns

_CHUNK_ROWS = 512
_MOST_CHUNKS = 16


def to_batch(rows: Sequence[Row | RowError], fields: FieldMap, first_row: int) -> tuple[DataProto, list[RowError | None]]:
    """Return the batch of the rows that can be scored, and one error or None per row; `first_row` numbers `rows[0]`."""
    columns: dict[str, Any]
    columns, errors = batch_columns(rows, fields, first_row)
    columns.pop("prompt_ids", None)
    ids = columns.pop("response_ids", None)
    if ids is None:
        return DataProto.from_dict(non_tensors=columns), errors
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    responses = np.zeros((len(ids), max(1, lengths.max(initial=0))), np.int64)
    for row, tokens in enumerate(ids):
        responses[row, : len(tokens)] = tokens
    return DataProto.from_dict(
        tensors={"responses": torch.from_numpy(responses)}, non_tensors={**columns, "response_len": lengths}
    ), errors


def chunk_rows(manager: RewardLoopManager) -> int:
    """Return how many rows make a chunk: one batch for a manager that scores batches, whole groups for one of groups."""
    group = manager.config.actor_rollout_ref.rollout.n if manager.unit == "group" else 1
    return -(-_CHUNK_ROWS // group) * group


async def score_chunks(
    manager: RewardLoopManager,
    work: Iterable[tuple[Chunk, Sequence[int]]],
    fields: FieldMap,
    ended: Callable[[Chunk, int, Outcome], None],
) -> None:
    """Score these rows of these chunks and call `ended(chunk, row of the chunk, outcome)` as each one ends.

    `work` is read as many chunks ahead as keep the workers busy, and no further where chunks wait for a slow row. A row that
    can't be read ends as an error. Raises DataError for a group that does not lie in one chunk.
    """
    rows_ahead = _rows_ahead(manager)
    most_chunks = max(_MOST_CHUNKS, rows_ahead // chunk_rows(manager))
    sent: dict[int, tuple[Chunk, list[int]]] = {}
    left: dict[int, int] = {}
    room = asyncio.Event()

    async def batches() -> AsyncIterator[DataProto]:
        number = 0
        for chunk, rows in _in_whole_groups(work, fields) if manager.unit == "group" else work:
            data, errors = to_batch([chunk.rows[row] for row in rows], fields, chunk.first_row)
            for row, error in zip(rows, errors, strict=True):
                if error is not None:
                    ended(chunk, row, Outcome.from_error(error.error, 0.0))
            if len(data):
                sent[number] = chunk, [row for row, error in zip(rows, errors, strict=True) if error is None]
                left[number] = len(data)
                number += 1
                yield data
            while len(sent) >= most_chunks:
                room.clear()
                await room.wait()

    async with aclosing(manager.stream(batches(), max_pending=rows_ahead)) as results:
        async for scored in results:
            chunk, rows = sent[scored.item]
            left[scored.item] -= 1
            if not left[scored.item]:
                del sent[scored.item], left[scored.item]
                room.set()
            ended(chunk, rows[scored.row], scored.outcome)


def _rows_ahead(manager: RewardLoopManager) -> int:
    """Return how many rows are under way at a time: what the workers score at once, and two chunks at the least.

    With less they would stand idle while the last rows of a chunk are scored.
    """
    settings = manager.config.reward_model
    workers = settings.num_workers if settings.executor == "ray" else 1
    return max(2 * chunk_rows(manager), workers * settings.max_concurrency)


def _in_whole_groups(work: Iterable[tuple[Chunk, Sequence[int]]], fields: FieldMap) -> Iterator[tuple[Chunk, Sequence[int]]]:
    """Hand the chunks on; DataError where a group begins in one and ends in the next."""
    before: Chunk | None = None
    for chunk, rows in work:
        if before is not None and before.index == chunk.index - 1:
            last, first = (
                look_up(row, fields.uid) if isinstance(row, dict) else None for row in (before.rows[-1], chunk.rows[0])
            )
            if first is not None and last == first:
                raise DataError(
                    f"row {chunk.first_row}: its group {first!r} began in the chunk of {len(before.rows)} rows before it; groups "
                    "must be complete, of actor_rollout_ref.rollout.n rows that follow each other: set it to their size"
                )
        before = chunk
        yield chunk, rows
