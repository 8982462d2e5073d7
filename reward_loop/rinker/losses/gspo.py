"""GSPO: the ratio of whole sequences is clipped, so that a sequence is kept or dropped as one."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.clipping import HIGH, LOW, THRESHOLDS, clipped_surrogate, thresholds
from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss
from reward_loop.rinker.losses.ratio import probability_ratio


def gspo(
    logprobs: torch.Tensor,
    sampled: torch.Tensor,
    advantages: torch.Tensor,
    sequence_ratio_mask: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
) -> LossTerms:
    """-min(s A, clip(s, low, high) A) per token: [B, T] each; thresholds of shape [] too.

    s is exp of the mean of log p - log q over what the row's mask marks; each token has this value and the gradient of its own
    log-probability. arXiv:2507.18071, section 4.3 (GSPO-token).
    """
    marked = sequence_ratio_mask != 0
    difference = torch.where(marked, logprobs.detach() - sampled, 0.0)
    mean = difference.sum(-1, keepdim=True) / marked.sum(-1, keepdim=True).clamp(min=1)
    sequence = probability_ratio(mean, torch.zeros_like(mean))
    own = logprobs - logprobs.detach()  # 0, with a gradient
    loss, clipped = clipped_surrogate(sequence * own.exp(), advantages, low, high)
    return LossTerms(loss, {"clip_frac": clipped})


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    sampled, advantages, marked = inputs["logprobs"], inputs["advantages"], inputs["sequence_ratio_mask"]
    return gspo(logprobs, sampled, advantages, marked, *thresholds(inputs, settings, logprobs))


GSPO = TokenLoss("gspo", _terms, ("logprobs", "advantages", "sequence_ratio_mask"), (*THRESHOLDS, "mask"), {LOW: 0.8, HIGH: 1.2})
"""Tinker names no default thresholds; ours are PPO's. The paper's are far closer, 1 - 3e-4 and 1 + 4e-4."""
