"""The losses by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.losses.cispo import CISPO
from reward_loop.rinker.losses.cross_entropy import CROSS_ENTROPY
from reward_loop.rinker.losses.dro import DRO
from reward_loop.rinker.losses.gspo import GSPO
from reward_loop.rinker.losses.importance_sampling import IMPORTANCE_SAMPLING
from reward_loop.rinker.losses.loss import LossName, TokenLoss
from reward_loop.rinker.losses.ppo import PPO

TOKEN_LOSSES: Mapping[str, TokenLoss] = {loss.name: loss for loss in (CROSS_ENTROPY, IMPORTANCE_SAMPLING, PPO, CISPO, DRO, GSPO)}
"""Those of language models; a reward model has one only, bradley_terry."""


def token_loss(name: str) -> TokenLoss:
    """Return the loss of this name; RequestFailedError ("user") if a language model has no such loss."""
    if name in TOKEN_LOSSES:
        return TOKEN_LOSSES[name]
    if name in get_args(LossName):
        raise RequestFailedError(
            f"loss_fn={name!r} trains reward models (kind seq_cls), and this is a language model; use one of "
            f"{', '.join(TOKEN_LOSSES)}",
            category="user",
        )
    raise RequestFailedError(f"unknown loss_fn={name!r}; use one of {', '.join(get_args(LossName))}", category="user")


def check_pair_loss(name: str) -> None:
    """Raise RequestFailedError ("user") unless this is the loss of reward models."""
    if name == "bradley_terry":
        return
    if name in TOKEN_LOSSES:
        raise RequestFailedError(
            f"loss_fn={name!r} trains language models, and this is a reward model (kind seq_cls); use bradley_terry",
            category="user",
        )
    raise RequestFailedError(f"unknown loss_fn={name!r}; use one of {', '.join(get_args(LossName))}", category="user")
