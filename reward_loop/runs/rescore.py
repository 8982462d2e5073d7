"""Scoring a scored file again with today's functions, to see what changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reward_loop.loop import RewardLoopManager
from reward_loop.loop.worker import error_policy
from reward_loop.outcome import Outcome
from reward_loop.runs.batches import chunk_rows, score_chunks
from reward_loop.runs.fields import FieldMap, Row
from reward_loop.runs.scored import outcome_fields
from reward_loop.runs.source import Chunk, RolloutSource

_COMPARED = ("reward", "token_rewards", "reward_status")


@dataclass(frozen=True, slots=True)
class Change:
    """A row whose reward or status is another one today."""

    row: int
    stored: Row
    today: Row


@dataclass(slots=True)
class Comparison:
    """How many rows are as stored, and those that are not, in the file's order."""

    same: int = 0
    changes: list[Change] = field(default_factory=list)


async def rescore(
    manager: RewardLoopManager, source: RolloutSource, fields: FieldMap, progress: Callable[[Row], None]
) -> Comparison:
    """Score every row of a scored file and compare reward, per-token rewards and status with the stored ones."""
    comparison = Comparison()
    policy = error_policy(manager.config)

    def compare(chunk: Chunk, row: int, outcome: Outcome) -> None:
        today = outcome_fields(outcome, policy)
        known = chunk.rows[row]
        stored = {name: known.get(name) if isinstance(known, dict) else None for name in _COMPARED}
        if any(stored[name] != today[name] for name in _COMPARED):
            comparison.changes.append(Change(chunk.first_row + row, stored, today))
        else:
            comparison.same += 1
        progress(today)

    chunks = ((chunk, range(len(chunk.rows))) for chunk in source.chunks(chunk_rows(manager)))
    await score_chunks(manager, chunks, fields, compare)
    comparison.changes.sort(key=lambda change: change.row)
    return comparison
