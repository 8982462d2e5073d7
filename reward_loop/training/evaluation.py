"""How well a reward model agrees with preferences that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from reward_loop.training.batches import NO_LABEL
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.losses import bradley_terry_loss, pairwise_accuracy, preferred
from reward_loop.training.readout import Readout
from reward_loop.training.scores import score_rows


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over all pairs; `accuracy` is the share whose chosen answer has the higher reward."""

    accuracy: float
    loss: float
    reward_difference: float
    """Chosen minus rejected."""
    by_label: Mapping[int, float] = field(default_factory=dict[int, float])
    """Accuracy over the pairs about each label; empty where no pair names one."""


def evaluate(
    model: nn.Module, pairs: Sequence[EncodedPair], readout: Readout | None = None, *, batch_rows: int = 256
) -> Evaluation:
    """Score both answers of every pair (at least one) and compare; the model's mode and gradients stay as they are."""
    labels = torch.tensor([NO_LABEL if pair.label is None else pair.label for pair in pairs])
    scores = score_rows(model, [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs], batch_rows=batch_rows)
    chosen, rejected = (readout or Readout()).rewards(scores, labels.repeat(2)).chunk(2)
    margins = torch.tensor([pair.margin for pair in pairs])
    right = preferred(chosen, rejected).double()
    return Evaluation(
        pairwise_accuracy(chosen, rejected),
        bradley_terry_loss(chosen, rejected, margins).item(),
        (chosen - rejected).mean().item(),
        {label: right[labels == label].mean().item() for label in sorted(set(labels.tolist()) - {NO_LABEL})},
    )
