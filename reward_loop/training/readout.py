"""From the scores of a head with several labels to the one reward that a preference is about."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from reward_loop.errors import TrainingError
from reward_loop.training.batches import NO_LABEL
from reward_loop.training.encoding import EncodedPair


@dataclass(frozen=True, slots=True)
class Readout:
    """The reward is the score of `label`, or the sum of all scores by `weights`; a head of one label needs neither.

    A preference that names its label is about that one's score, whatever is set here: the loss is then pairwise per label.
    """

    label: int | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.label is not None and self.weights is not None:
            raise TrainingError(f"set either label={self.label} or weights={self.weights} of a readout, not both")
        if self.weights is not None and not (all(map(math.isfinite, self.weights)) and any(self.weights)):
            raise TrainingError(f"the weights of a readout must be finite and not all 0; they are {self.weights}")

    def check(self, labels: int, pairs: Iterable[EncodedPair], what: str = "pairs") -> None:
        """Raise TrainingError, which calls the pairs `what`, unless each has a reward with a head of so many labels."""
        if self.label is not None and not 0 <= self.label < labels:
            raise TrainingError(f"label={self.label} is none of the head's labels, 0 to {labels - 1}")
        if self.weights is not None and len(self.weights) != labels:
            raise TrainingError(f"{len(self.weights)} weights, {self.weights}, don't fit a head of {labels} labels")
        for index, pair in enumerate(pairs):
            if pair.label is not None and not 0 <= pair.label < labels:
                raise TrainingError(f"the pair is about label {pair.label} of a head of {labels} labels", f"{what}[{index}]")
            if pair.label is None and labels > 1 and self.label is None and self.weights is None:
                raise TrainingError(
                    f"the head has {labels} labels: set the readout's label or weights, or name a label in every preference",
                    f"{what}[{index}]",
                )

    def rewards(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scores [N, L] and each row's own label [N] (NO_LABEL: none) -> rewards [N]; checked by `check` before."""
        if self.weights is not None:
            default = scores @ torch.tensor(self.weights, dtype=scores.dtype, device=scores.device)
        else:
            default = scores[:, self.label or 0]
        own = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]
        return torch.where(labels == NO_LABEL, default, own)
