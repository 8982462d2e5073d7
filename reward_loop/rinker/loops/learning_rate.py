"""The course of the learning rate."""

from __future__ import annotations

import math
from typing import Literal, assert_never

from reward_loop.training.settings import learning_rate_factor

Schedule = Literal["constant", "linear", "cosine"]


def factor(schedule: Schedule, step: int, steps: int, warmup_steps: int = 0) -> float:
    """Share of the learning rate that step `step` (from 0) of `steps` takes; a run shorter than its warm-up only rises."""
    rising = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    match schedule:
        case "constant":
            return rising
        case "linear":
            return learning_rate_factor(step, steps, warmup_steps)
        case "cosine":
            if steps <= warmup_steps or step < warmup_steps:
                return rising
            return 0.5 * (1.0 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))
        case _:
            assert_never(schedule)
