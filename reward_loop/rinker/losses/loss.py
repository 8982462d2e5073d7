"""What a loss of a language model is: which inputs and settings it takes, and what it makes of each token.

Invariants: a loss is a sum over tokens, never a mean, so that calls, chunks and ranks add up; a position that takes no part adds
exactly 0 to the loss and to its gradient, whatever the model or the data say there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

LossName = Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo", "bradley_terry"]

LossInputs: TypeAlias = Mapping[str, torch.Tensor]
"""What came with the data, [B, T] float32 each ([B, T, K] where there are K targets), 0 where rows are padded."""
LossSettings: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What a loss makes of each token."""

    loss: torch.Tensor
    """[B, T], to be summed."""
    shown: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """[B, T] each, of which the mean is shown as a metric of this name."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A loss of the log-probabilities of target tokens."""

    name: LossName
    terms: Callable[[torch.Tensor, LossInputs, LossSettings], LossTerms]
    """Log-probabilities [B, T], or [B, T, K] with `many_targets`, inputs, settings -> its terms."""
    required: Sequence[str] = ()
    """Keys of loss_fn_inputs, beside target_tokens."""
    optional: Sequence[str] = ()
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    """Keys of the loss's configuration, with their defaults."""
    many_targets: bool = False
    """Whether a position may have several targets, each with a weight."""

    @property
    def known(self) -> tuple[str, ...]:
        """Every key that its data may have."""
        return ("target_tokens", *self.required, *self.optional)
