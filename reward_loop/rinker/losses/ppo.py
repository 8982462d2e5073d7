"""The clipped surrogate of PPO, token by token."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.clipping import HIGH, LOW, THRESHOLDS, clipped_surrogate, thresholds
from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss
from reward_loop.rinker.losses.ratio import probability_ratio


def ppo(
    logprobs: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> LossTerms:
    """-min(r A, clip(r, low, high) A) with r = p / q: [B, T] each; thresholds of shape [] too.

    arXiv:1707.06347, equation 7; the thresholds as in Tinker's documentation of its losses, `ppo`.
    """
    loss, clipped = clipped_surrogate(probability_ratio(logprobs, sampled), advantages, low, high)
    return LossTerms(loss, {"clip_frac": clipped})


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    return ppo(logprobs, inputs["logprobs"], inputs["advantages"], *thresholds(inputs, settings, logprobs))


PPO = TokenLoss("ppo", _terms, ("logprobs", "advantages"), (*THRESHOLDS, "mask"), {LOW: 0.8, HIGH: 1.2})
