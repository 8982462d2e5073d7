"""What a reward model is trained to: its rewards explain which of two answers people preferred."""

from __future__ import annotations

import torch
from torch.nn.functional import logsigmoid


def bradley_terry_loss(
    chosen: torch.Tensor, rejected: torch.Tensor, margin: torch.Tensor | None = None, *, centring: float = 0.0
) -> torch.Tensor:
    """Mean of -log sigmoid(chosen - rejected - margin), in float32: rewards [B] each, margins [B] or None -> a scalar.

    Bradley and Terry's model of 1952, as a loss in arXiv:2203.02155 (equation 1), the margin in arXiv:2307.09288 (equation 2).
    Only differences matter to it: `centring` weighs `centring_loss`, which fixes the level; 0.01 is usual.
    """
    difference = chosen.float() - rejected.float()
    loss = -logsigmoid(difference if margin is None else difference - margin).mean()
    return loss + centring * centring_loss(chosen, rejected) if centring else loss


def centring_loss(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """Mean of (chosen + rejected)²: rewards [B] each -> a scalar, 0 if each pair's rewards are symmetric about 0.

    arXiv:2312.09244, as TRL's `center_rewards_coefficient` weighs it.
    """
    return (chosen.float() + rejected.float()).square().mean()


def preferred(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """Whether each chosen answer has the higher reward: [B] each -> [B] bool. A tie is not higher."""
    return chosen > rejected


def pairwise_accuracy(chosen: torch.Tensor, rejected: torch.Tensor) -> float:
    """Share of pairs whose chosen answer has the higher reward; a tie counts as wrong."""
    return preferred(chosen, rejected).double().mean().item()
