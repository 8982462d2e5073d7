"""From a loss per token to one number: what a token, and what a sequence, weighs."""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never, get_args

import torch

from reward_loop.errors import ConfigError

Aggregation: TypeAlias = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


def aggregate(
    values: torch.Tensor, mask: torch.Tensor, how: Aggregation = "token-sum", max_tokens: int | None = None
) -> torch.Tensor:
    """Return a scalar from values [B, R], of which those count where mask [B, R] is not 0, under verl's names.

    token-mean is DAPO's (arXiv:2503.14476), token-sum Tinker's, seq-mean-token-mean GRPO's (arXiv:2402.03300),
    seq-mean-token-sum-norm Dr. GRPO's (arXiv:2503.20783): each sequence's sum over the constant `max_tokens` (default R).
    Sequences without tokens don't count; without any the result is 0.
    """
    if how not in get_args(Aggregation):
        raise ConfigError(f"how={how!r} is none of {', '.join(get_args(Aggregation))}")
    if values.shape != mask.shape or values.dim() != 2:
        raise ConfigError(f"values {list(values.shape)} and mask {list(mask.shape)} must have one shape, [B, R]")
    kept = mask.bool()
    sums = torch.where(kept, values, 0.0).sum(dim=1)  # where, not a product: 0 * inf is no number
    tokens = kept.sum(dim=1)
    sequences = (tokens > 0).sum().clamp(min=1)
    match how:
        case "token-mean":
            return sums.sum() / tokens.sum().clamp(min=1)
        case "token-sum":
            return sums.sum()
        case "seq-mean-token-sum":
            return sums.sum() / sequences
        case "seq-mean-token-mean":
            return (sums / tokens.clamp(min=1)).sum() / sequences
        case "seq-mean-token-sum-norm":
            return sums.sum() / sequences / (max_tokens or values.shape[1])
        case _:
            assert_never(how)
