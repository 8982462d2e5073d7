"""Weighted cross-entropy, of one target per position or of several."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss


def cross_entropy(logprobs: torch.Tensor, weights: torch.Tensor) -> LossTerms:
    """-w · log p per target: [B, T] each, or [B, T, K] with K targets of which the weights are a distribution, or anything else.

    A weight of 0 takes its target out. Tinker's documentation of its losses, `cross_entropy`.
    """
    loss = -torch.where(weights == 0, 0.0, weights * torch.where(weights == 0, 0.0, logprobs))
    return LossTerms(loss.sum(-1) if loss.ndim == 3 else loss)


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    return cross_entropy(logprobs, inputs["weights"])


CROSS_ENTROPY = TokenLoss("cross_entropy", _terms, optional=("weights",), many_targets=True)
"""Without weights every target weighs 1."""
