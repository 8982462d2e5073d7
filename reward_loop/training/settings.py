"""How a reward model is trained: steps, learning rate and its schedule, what is measured and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reward_loop.errors import TrainingError
from reward_loop.training.readout import Readout

_WITHOUT_EFFECT = ("micro_batch_pairs", "by_length", "evaluate_every", "checkpoint_every", "keep_checkpoints")


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """AdamW on batches of preferences; the learning rate rises over `warmup_steps` and falls linearly to 0 at the last step.

    Without the fall a small model's accuracy depends on the step at which the training happens to end.
    """

    steps: int | None = None
    """Updates of the weights; None: as many as `epochs` take."""
    epochs: float = 1.0
    batch_pairs: int = 64
    """Pairs of one update."""
    micro_batch_pairs: int | None = None
    """Pairs that are in memory at once, whose gradients add up to the update's; None: all of them."""
    by_length: bool = True
    """Put pairs of like length into one micro-batch."""
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0
    centring: float = 0.0
    """Weight of the penalty that keeps rewards about 0."""
    readout: Readout = field(default_factory=Readout)
    seed: int = 0
    """Of the batches' order and of dropout."""
    evaluate_every: int | None = None
    """Steps between two looks at the held-out pairs; None: at the end only."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints, where there is a directory for them; None: at the end only."""
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        positive = ("epochs", "batch_pairs", "learning_rate", "max_grad_norm", "keep_checkpoints")
        optional = ("steps", "micro_batch_pairs", "evaluate_every", "checkpoint_every")
        for name in (*positive, *(name for name in optional if getattr(self, name) is not None)):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise TrainingError(f"{name}={getattr(self, name)} must be positive")
        for name in ("warmup_steps", "weight_decay", "centring"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise TrainingError(f"{name}={getattr(self, name)} must not be negative")

    def total_steps(self, pairs: int) -> int:
        """Return the number of updates with so many pairs."""
        return self.steps if self.steps is not None else max(1, round(self.epochs * pairs / self.batch_pairs))

    def what_decides(self) -> Mapping[str, Any]:
        """Return what the trained weights depend on, but for rounding, as plain values."""
        return {name: value for name, value in asdict(self).items() if name not in _WITHOUT_EFFECT}


def learning_rate_factor(step: int, steps: int, warmup_steps: int) -> float:
    """Share of the learning rate that step `step` (from 0) of `steps` takes: up to 1 in the warm-up, then down towards 0.

    A training that is shorter than its warm-up only rises.
    """
    rising = (step + 1) / warmup_steps if warmup_steps else 1.0
    falling = (steps - step) / max(1, steps - warmup_steps)
    return min(1.0, rising, falling) if steps > warmup_steps else min(1.0, rising)
