"""The hyperparameters of one optimiser step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdamParams:
    """AdamW (decoupled weight decay) with the defaults of the Tinker SDK."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0
    """The norm of all gradients together is clipped to this; 0: it is not."""
