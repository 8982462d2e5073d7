"""CISPO: the ratio is clipped, and every token keeps its gradient."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.clipping import HIGH, LOW, THRESHOLDS, thresholds
from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss
from reward_loop.rinker.losses.ratio import probability_ratio


def cispo(
    logprobs: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> LossTerms:
    """-sg(clip(r, low, high)) · log p · A with r = p / q: [B, T] each; thresholds of shape [] too.

    arXiv:2506.13585, equation 4. The default thresholds, 0 and 4, clip on one side only (arXiv:2510.13786).
    """
    ratio = probability_ratio(logprobs.detach(), sampled)
    kept = ratio.clamp(low, high)
    return LossTerms(-kept * logprobs * advantages, {"clip_frac": kept != ratio})


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    return cispo(logprobs, inputs["logprobs"], inputs["advantages"], *thresholds(inputs, settings, logprobs))


CISPO = TokenLoss("cispo", _terms, ("logprobs", "advantages"), (*THRESHOLDS, "mask"), {LOW: 0.0, HIGH: 4.0})
