"""Between which thresholds a ratio counts: of the whole call, or of each token.

Thresholds are ratios themselves (0.8 and 1.2), not distances from 1.
"""

from __future__ import annotations

import torch

from reward_loop.rinker.losses.loss import LossInputs, LossSettings

LOW, HIGH = "clip_low_threshold", "clip_high_threshold"
THRESHOLDS = (LOW, HIGH)


def thresholds(inputs: LossInputs, settings: LossSettings, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lower and the upper threshold; those that came with the data count before those of the configuration."""
    low, high = (inputs[key] if key in inputs else like.new_tensor(settings[key]) for key in THRESHOLDS)
    return low, high


def clipped_surrogate(
    ratio: torch.Tensor, advantages: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss -min(r A, clip(r) A), and where the clipping took its gradient away.

    A ratio above `high` is clipped where A > 0, one below `low` where A < 0; what makes good what has gone too far is kept.
    """
    free, clipped = ratio * advantages, ratio.clamp(low, high) * advantages
    return -torch.minimum(free, clipped), clipped < free
