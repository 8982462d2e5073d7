"""DRO: a policy gradient whose step away from the sampling policy is paid for."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss


def dro(logprobs: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, beta: float) -> LossTerms:
    """-(log p · A - beta/2 · (log p - log q)²): [B, T] each.

    arXiv:2405.19107, equation 6, token by token; Tinker's documentation of its losses, `dro`.
    """
    return LossTerms(-(logprobs * advantages - beta / 2 * (logprobs - sampled).square()))


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    return dro(logprobs, inputs["logprobs"], inputs["advantages"], settings["beta"])


DRO = TokenLoss("dro", _terms, ("logprobs", "advantages"), ("mask",), {"beta": 0.05})
"""Tinker names no default of beta; ours is the one that its examples use."""
