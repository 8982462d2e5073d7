"""REINFORCE, corrected for the policy that sampled."""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.loss import LossInputs, LossSettings, LossTerms, TokenLoss
from reward_loop.rinker.losses.ratio import probability_ratio


def importance_sampling(logprobs: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor) -> LossTerms:
    """-r · A with r = p / q: [B, T] each. Where r = 1 its gradient is REINFORCE's, -A · d log p.

    Seed 003, section 3.1; Tinker's documentation of its losses, `importance_sampling`.
    """
    return LossTerms(-probability_ratio(logprobs, sampled) * advantages)


def _terms(logprobs: torch.Tensor, inputs: LossInputs, settings: LossSettings) -> LossTerms:
    return importance_sampling(logprobs, inputs["logprobs"], inputs["advantages"])


IMPORTANCE_SAMPLING = TokenLoss("importance_sampling", _terms, ("logprobs", "advantages"), ("mask",))
