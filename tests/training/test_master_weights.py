"""Weights of a short type are trained in float32."""

from __future__ import annotations

import torch
from torch import nn

from reward_loop.training.master_weights import MasterWeights


def parameter(dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.ones(3, dtype=dtype))


def test_small_steps_add_up_that_bfloat16_would_round_away() -> None:
    weight = parameter(torch.bfloat16)
    masters = MasterWeights({"weight": weight})
    optimizer = torch.optim.SGD(list(masters.masters.values()), lr=1.0)
    for _ in range(100):
        weight.grad = torch.full((3,), 1e-3, dtype=torch.bfloat16)
        masters.collect()
        optimizer.step()
        optimizer.zero_grad()
        masters.hand_back()
    torch.testing.assert_close(masters.masters["weight"].detach(), torch.full((3,), 0.9), atol=1e-3, rtol=0)
    assert weight.tolist() == torch.full((3,), 0.9).bfloat16().tolist()
    assert (parameter(torch.bfloat16) - 1e-3).tolist() == [1.0] * 3


def test_gradients_of_micro_batches_are_summed_in_float32() -> None:
    weight = parameter(torch.bfloat16)
    masters = MasterWeights({"weight": weight})
    for value in (256.0, 1.0):
        weight.grad = torch.full((3,), value, dtype=torch.bfloat16)
        masters.collect()
    assert masters.masters["weight"].grad is not None
    assert masters.masters["weight"].grad.tolist() == [257.0] * 3  # 256 in bfloat16
    assert weight.grad is None


def test_float32_weights_are_their_own_copies() -> None:
    weight = parameter(torch.float32)
    assert MasterWeights({"weight": weight}).masters["weight"] is weight


def test_the_state_brings_back_full_precision() -> None:
    first, second = parameter(torch.bfloat16), parameter(torch.bfloat16)
    masters = MasterWeights({"weight": first})
    with torch.no_grad():
        masters.masters["weight"].fill_(0.123456)
    other = MasterWeights({"weight": second})
    other.load(masters.state())
    assert other.masters["weight"].tolist() == masters.masters["weight"].tolist()
    assert second.tolist() == torch.full((3,), 0.123456).bfloat16().tolist()
