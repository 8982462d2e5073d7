"""Which pairs a step sees, and how they are padded."""

from __future__ import annotations

from reward_loop.training.batches import NO_LABEL, BatchOrder, collate, micro_batches
from reward_loop.training.encoding import EncodedPair

PAIRS = [EncodedPair((1, 2, 3), (4,), 0.5, 1), EncodedPair((5, 6), (7, 8))]


def test_answers_are_padded_on_the_right_chosen_ones_first() -> None:
    batch = collate(PAIRS, 0)
    assert batch.input_ids.tolist() == [[1, 2, 3], [5, 6, 0], [4, 0, 0], [7, 8, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]]
    assert batch.margins.tolist() == [0.5, 0.0]
    assert batch.labels.tolist() == [1, NO_LABEL]
    assert len(batch) == 2


def test_an_epoch_has_every_pair_once_and_the_next_another_order() -> None:
    order = BatchOrder(10, 5, seed=0)
    epochs = [order.rows(step) + order.rows(step + 1) for step in (0, 2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]


def test_the_rows_of_a_step_depend_on_seed_and_step_alone() -> None:
    order = BatchOrder(7, 3, seed=4)
    forwards = [order.rows(step) for step in range(9)]
    assert [BatchOrder(7, 3, seed=4).rows(step) for step in reversed(range(9))] == forwards[::-1]
    assert forwards != [BatchOrder(7, 3, seed=5).rows(step) for step in range(9)]
    assert forwards[0] != [0, 1, 2]


def test_micro_batches_hold_each_row_once_pairs_of_like_length_together() -> None:
    pairs = [EncodedPair((1,) * length, (2,)) for length in (1, 9, 2, 8, 3)]
    assert micro_batches(range(5), pairs, 2, by_length=True) == [[1, 3], [4, 2], [0]]
    assert micro_batches(range(5), pairs, 2, by_length=False) == [[0, 1], [2, 3], [4]]
