"""How much likelier a token is now than when it was sampled."""

from __future__ import annotations

import torch

_LOG_LIMIT = 20.0
"""e^20 is 5e8: far beyond what any loss can use, and far from what float32 can't hold."""


def probability_ratio(logprobs: torch.Tensor, sampled: torch.Tensor) -> torch.Tensor:
    """exp(logprobs - sampled), always finite: a ratio outside of e^±20 stays at that limit and has no gradient."""
    return (logprobs - sampled).clamp(-_LOG_LIMIT, _LOG_LIMIT).exp()
