"""The losses of preferences, against numbers worked out by hand or by another implementation."""

from __future__ import annotations

import pytest
import torch

from reward_loop.training.losses import bradley_terry_loss, centring_loss, pairwise_accuracy

CHOSEN = torch.tensor([1.0, 0.2, -0.5])
REJECTED = torch.tensor([0.0, 0.4, -2.0])
MARGIN = torch.tensor([0.0, 0.5, 1.0])


def test_the_reference_vector() -> None:
    assert bradley_terry_loss(CHOSEN, REJECTED).item() == pytest.approx(0.437605, abs=1e-6)
    assert bradley_terry_loss(CHOSEN, REJECTED, MARGIN).item() == pytest.approx(0.630175, abs=1e-6)
    assert 0.01 * centring_loss(CHOSEN, REJECTED).item() == pytest.approx(0.025367, abs=1e-6)
    assert pairwise_accuracy(CHOSEN, REJECTED) == pytest.approx(2 / 3)


def test_centring_is_added_by_its_weight() -> None:
    loss = bradley_terry_loss(CHOSEN, REJECTED, MARGIN, centring=0.01)
    assert loss.item() == pytest.approx(0.630175 + 0.025367, abs=1e-6)


def test_only_differences_matter_without_centring() -> None:
    raised = bradley_terry_loss(CHOSEN + 3, REJECTED + 3)
    assert raised.item() == pytest.approx(bradley_terry_loss(CHOSEN, REJECTED).item(), abs=1e-6)
    assert centring_loss(CHOSEN + 3, REJECTED + 3) > centring_loss(CHOSEN, REJECTED)


def test_hopeless_differences_give_a_finite_loss_and_gradient() -> None:
    chosen = torch.tensor([-1e4], requires_grad=True)
    loss = bradley_terry_loss(chosen, torch.tensor([1e4]))
    torch.autograd.backward(loss)
    assert loss.item() == 2e4
    assert chosen.grad is not None
    assert chosen.grad.item() == -1.0


def test_rewards_of_a_short_type_are_compared_in_float32() -> None:
    chosen, rejected = torch.tensor([256.0]), torch.tensor([1.5])
    loss = bradley_terry_loss(chosen.bfloat16(), rejected.bfloat16(), torch.tensor([254.5]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(0.693147, abs=1e-6)  # the difference would be 254 in bfloat16


def test_a_tie_is_no_right_answer() -> None:
    assert pairwise_accuracy(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])) == 0.5
