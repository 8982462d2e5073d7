"""The reference vector of the notes: three tokens, and what each loss and its gradient are there."""

from __future__ import annotations

from collections.abc import Callable

import torch

from reward_loop.rinker.losses.loss import LossTerms

NOW = (-1.0, -2.0, -0.5)
SAMPLED = torch.tensor([[-1.5, -1.5, -0.5]], dtype=torch.float64)
ADVANTAGES = torch.tensor([[1.0, -0.5, 2.0]], dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def value_and_gradient(terms: Callable[[torch.Tensor], LossTerms], now: tuple[float, ...] = NOW) -> tuple[float, list[float]]:
    """The summed loss of one row of log-probabilities, and its gradient by them."""
    logprobs = torch.tensor([now], dtype=torch.float64, requires_grad=True)
    loss = terms(logprobs).loss.sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return loss.item(), gradient[0].tolist()
