"""Cutting data into what fits into memory."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies

from reward_loop.rinker.engine.micro_batches import micro_batches
from reward_loop.rinker.engine.rows import PairRow


def rows(*lengths: int) -> list[PairRow]:
    return [PairRow([1] * length) for length in lengths]


def test_those_of_like_length_are_together_the_longest_first() -> None:
    assert micro_batches(rows(2, 9, 3, 8), 18) == [[1, 3], [2, 0]]


def test_padding_counts() -> None:
    assert micro_batches(rows(10, 1, 1), 20) == [[0, 1], [2]]


def test_what_is_longer_is_alone() -> None:
    assert micro_batches(rows(100, 1), 10) == [[0], [1]]


def test_a_pair_is_two_lines_as_long_as_its_longer_answer() -> None:
    pair = PairRow([1] * 4, [1] * 6)
    assert (pair.width, pair.lines) == (6, 2)
    assert micro_batches([pair, pair], 24) == [[0, 1]]
    assert micro_batches([pair, pair], 23) == [[0], [1]]


@hypothesis.given(strategies.lists(strategies.integers(1, 50)), strategies.integers(1, 100))
def test_every_row_is_in_one_batch_and_none_is_too_large(lengths: list[int], tokens: int) -> None:
    batches = micro_batches(rows(*lengths), tokens)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= tokens
