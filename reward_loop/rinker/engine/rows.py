"""Data that have been checked, as tensors on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One sequence of N tokens for a language model."""

    tokens: Sequence[int]
    targets: torch.Tensor
    """[N, K] int64."""
    inputs: Mapping[str, torch.Tensor]
    """[N] float32 each; `weights` [N, K]."""
    many_targets: bool = False
    """Whether its targets came as [N, K], as its log-probabilities are then returned."""

    @property
    def width(self) -> int:
        """Tokens of a line of the padded batch."""
        return len(self.tokens)

    @property
    def lines(self) -> int:
        """Lines of the batch that it takes."""
        return 1


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair for a reward model, or a single sequence to be scored."""

    chosen: Sequence[int]
    rejected: Sequence[int] | None = None
    margin: float = 0.0

    @property
    def width(self) -> int:
        """Tokens of a line of the padded batch."""
        return max(len(self.chosen), len(self.rejected or ()))

    @property
    def lines(self) -> int:
        """Lines of the batch that it takes."""
        return 1 if self.rejected is None else 2


Row = TokenRow | PairRow
