"""The loss of reward models at the notes' vector, as a sum over pairs."""

from __future__ import annotations

import pytest
import torch

from reward_loop.rinker.losses.bradley_terry import bradley_terry

CHOSEN = torch.tensor([1.0, 0.2, -0.5])
REJECTED = torch.tensor([0.0, 0.4, -2.0])
MARGINS = torch.tensor([0.0, 0.5, 1.0])
NONE = torch.zeros(3)


@pytest.mark.parametrize(("margins", "mean"), [(NONE, 0.437605), (MARGINS, 0.630175)])
def test_the_reference_vector_times_the_number_of_pairs(margins: torch.Tensor, mean: float) -> None:
    loss, _ = bradley_terry(CHOSEN, REJECTED, margins)
    assert loss.item() == pytest.approx(3 * mean, abs=3e-6)


def test_centring_adds_the_square_of_the_sums() -> None:
    with_it, _ = bradley_terry(CHOSEN, REJECTED, NONE, 0.01)
    without, _ = bradley_terry(CHOSEN, REJECTED, NONE)
    assert (with_it - without).item() == pytest.approx(3 * 0.025367, abs=3e-6)


def test_it_shows_by_the_pair_which_answer_won_and_by_how_much() -> None:
    _, shown = bradley_terry(CHOSEN, REJECTED, NONE)
    assert shown["accuracy"].tolist() == [True, False, True]
    assert shown["reward_difference"].tolist() == pytest.approx([1.0, -0.2, 1.5])


def test_its_gradient_pushes_the_answers_apart() -> None:
    chosen, rejected = CHOSEN.clone().requires_grad_(), REJECTED.clone().requires_grad_()
    loss, _ = bradley_terry(chosen, rejected, MARGINS)
    up, down = torch.autograd.grad(loss, (chosen, rejected))
    wanted = torch.sigmoid(MARGINS - CHOSEN + REJECTED)
    torch.testing.assert_close(up, -wanted)
    torch.testing.assert_close(down, wanted)
