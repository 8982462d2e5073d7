"""What a reward model is trained to, with pairs of which one answer is preferred."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from reward_loop.errors import RequestFailedError
from reward_loop.training.losses import bradley_terry_loss, preferred

PAIR_INPUTS = ("rejected_tokens", "margin")
PAIR_SETTINGS: Mapping[str, float] = {"center": 0.0, "label": 0.0}
"""center: weight of (preferred + rejected)², which keeps rewards about 0. TRL's `center_rewards_coefficient`; 0.01 is usual.

label: which score of a head with several the pairs are about.
"""


def check_label(label: float, labels: int) -> None:
    """Raise RequestFailedError ("user") unless a head of so many scores has this one."""
    if label not in range(labels):
        raise RequestFailedError(
            f"loss_fn_config['label'] is {label:g}, and the head has {labels} scores, 0 to {labels - 1}", category="user"
        )


def bradley_terry(
    chosen: torch.Tensor, rejected: torch.Tensor, margin: torch.Tensor, center: float = 0.0
) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
    """Sum over pairs of -log sigmoid(chosen - rejected - margin) + center · (chosen + rejected)²: rewards and margins, [B] each.

    Returns the loss and, by the pair, what is shown. The sum, where papers and TRL take the mean: as with all losses here, parts
    of a batch then add up. The papers are named in `reward_loop.training.losses.bradley_terry_loss`.
    """
    loss = bradley_terry_loss(chosen, rejected, margin, centring=center) * len(chosen)
    return loss, {"accuracy": preferred(chosen, rejected), "reward_difference": (chosen - rejected).detach()}
