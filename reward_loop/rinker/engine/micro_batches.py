"""Cutting data into batches that fit into memory, those of like length together."""

from __future__ import annotations

from collections.abc import Sequence

from reward_loop.rinker.engine.rows import Row


def micro_batches(rows: Sequence[Row], tokens: int) -> list[list[int]]:
    """Return the numbers of the rows of each batch, of which none has more than `tokens` tokens, padding included.

    A row that is longer is a batch of its own. Longest first: what does not fit into memory then fails at once.
    """
    batches: list[list[int]] = []
    width = lines = 0
    for number in sorted(range(len(rows)), key=lambda at: -rows[at].width):
        row = rows[number]
        if not batches or (lines + row.lines) * width > tokens:
            batches.append([])
            width, lines = row.width, 0
        batches[-1].append(number)
        lines += row.lines
    return batches
