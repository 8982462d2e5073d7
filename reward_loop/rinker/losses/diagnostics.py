"""What is measured beside a loss, for the names that the cookbook knows.

A metric is called `NAME:REDUCTION`, which says how the values of several parts of a batch are joined. Whoever joins weighs a mean
by the number of data (not of tokens), so a mean is made of one value per datum: the mean over its tokens that take part.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from reward_loop.rinker.losses.loss import LossInputs


def taking_part(inputs: LossInputs) -> torch.Tensor:
    """Return which positions count, [B, T] bool: those of a weight, or those that were sampled.

    Sampled is what `mask` says or, without one, what has an advantage or a log-probability other than 0, as a prompt has neither.
    """
    if "weights" in inputs:
        weights = inputs["weights"]
        return (weights != 0).any(-1) if weights.ndim == 3 else weights != 0
    if "mask" in inputs:
        return inputs["mask"] != 0
    return (inputs["advantages"] != 0) | (inputs["logprobs"] != 0)


def row_means(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return each row's mean over the mask, [B, T] each -> [B] float64; 0 for a row without any."""
    kept = torch.where(mask, values.detach().double(), 0.0)
    return kept.sum(-1) / mask.sum(-1).clamp(min=1)


def kl_estimates(logprobs: torch.Tensor, sampled: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """How far the sampling policy q is from the trained one p, on q's tokens, by token: [B, T] each.

    v1 is log q - log p, unbiased; v2 half of its square, never negative and of less variance; v3 is e^-d - 1 + d, which is both.
    John Schulman, "Approximating KL Divergence" (2020), k1 to k3; v1 and v2 are the cookbook's names.
    """
    difference = (sampled - logprobs).detach()
    return {
        "kl_sample_train_v1": difference,
        "kl_sample_train_v2": difference.square() / 2,
        "kl_sample_train_v3": torch.expm1(-difference.clamp(-20, 20)) + difference,
    }
