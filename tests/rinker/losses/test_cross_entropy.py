"""Cross-entropy: weighted, summed, of one target per position or of several."""

from __future__ import annotations

import pytest
import torch

from reward_loop.rinker.losses.cross_entropy import cross_entropy


def test_it_equals_torchs_own_with_weights_1() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    targets = torch.tensor([[0, 1, 2], [3, 4, 0]])
    logprobs = logits.log_softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    ours = cross_entropy(logprobs, torch.ones(2, 3, dtype=torch.float64)).loss.sum()
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-9)


def test_weights_multiply_and_are_the_gradient() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, -4.0]], requires_grad=True)
    weights = torch.tensor([[0.5, 0.0, -1.0]])
    loss = cross_entropy(logprobs, weights).loss.sum()
    (slope,) = torch.autograd.grad(loss, logprobs)
    assert loss.item() == pytest.approx(0.5 - 4.0)
    assert slope.tolist() == [[-0.5, 0.0, 1.0]]


def test_several_targets_add_up_in_their_position() -> None:
    logprobs = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]]])
    terms = cross_entropy(logprobs, torch.tensor([[[0.25, 0.75], [1.0, 0.0]]]))
    assert terms.loss.tolist() == [[1.75, 3.0]]


def test_a_weight_of_0_takes_out_even_what_is_impossible() -> None:
    logprobs = torch.tensor([[-1.0, float("-inf")]], requires_grad=True)
    loss = cross_entropy(logprobs, torch.tensor([[1.0, 0.0]])).loss.sum()
    (slope,) = torch.autograd.grad(loss, logprobs)
    assert loss.item() == 1.0
    assert slope.tolist() == [[-1.0, 0.0]]
