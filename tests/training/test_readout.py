"""Which reward a head with several labels gives."""

from __future__ import annotations

import pytest
import torch

from reward_loop.errors import TrainingError
from reward_loop.training.batches import NO_LABEL
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.readout import Readout

SCORES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
NONE = torch.tensor([NO_LABEL, NO_LABEL])
PLAIN = EncodedPair((1,), (2,))


def test_a_label_is_chosen() -> None:
    assert Readout(label=2).rewards(SCORES, NONE).tolist() == [3.0, 6.0]


def test_labels_are_weighed() -> None:
    assert Readout(weights=(1.0, 0.0, -0.5)).rewards(SCORES, NONE).tolist() == [-0.5, 1.0]


def test_a_head_of_one_label_needs_nothing() -> None:
    assert Readout().rewards(SCORES[:, :1], NONE).tolist() == [1.0, 4.0]


def test_a_pair_that_names_its_label_is_about_that_one() -> None:
    assert Readout(label=0).rewards(SCORES, torch.tensor([1, NO_LABEL])).tolist() == [2.0, 4.0]
    assert Readout(weights=(1.0, 1.0, 1.0)).rewards(SCORES, torch.tensor([NO_LABEL, 2])).tolist() == [6.0, 6.0]


def test_a_pair_trains_the_label_that_it_names_alone() -> None:
    scores = SCORES.clone().requires_grad_(True)
    torch.autograd.backward(Readout().rewards(scores, torch.tensor([1, 2])).sum())
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("readout", "pair", "message"),
    [
        (Readout(label=3), PLAIN, "label=3 is none of the head's labels, 0 to 2"),
        (Readout(weights=(1.0, 2.0)), PLAIN, "2 weights, (1.0, 2.0), don't fit a head of 3 labels"),
        (Readout(), PLAIN, "sample pairs[0]: the head has 3 labels: set the readout's label or weights, or name a label"),
        (Readout(label=0), EncodedPair((1,), (2,), label=3), "sample pairs[0]: the pair is about label 3 of a head of 3"),
    ],
)
def test_what_does_not_fit_the_head_is_refused(readout: Readout, pair: EncodedPair, message: str) -> None:
    with pytest.raises(TrainingError) as error:
        readout.check(3, [pair])
    assert message in str(error.value)


def test_pairs_that_all_name_a_label_need_no_readout() -> None:
    Readout().check(3, [EncodedPair((1,), (2,), label=0), EncodedPair((1,), (2,), label=2)])


def test_contradictory_readouts_are_refused() -> None:
    with pytest.raises(TrainingError, match="not both"):
        Readout(label=1, weights=(1.0, 1.0))
    with pytest.raises(TrainingError, match="not all 0"):
        Readout(weights=(0.0, 0.0))
    with pytest.raises(TrainingError, match="must be finite"):
        Readout(weights=(float("nan"), 1.0))
