"""One pass through a model, as a module, so that what spreads a model over ranks can be put around it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reward_loop.training.scores import sequence_scores


class TokenForward(nn.Module):
    """Tokens and targets -> log-probabilities of the targets and the policy's entropy."""

    def __init__(self, model: nn.Module, *, autocast: bool, entropy: bool) -> None:
        super().__init__()
        self.model = model
        self._autocast, self._entropy = autocast, entropy

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Right-padded ids and mask [B, T], targets [B, T, K] -> [B, T, K] and [B, T] (without gradients), float32."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self._autocast):
            model: Any = self.model
            logits: torch.Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        logits = logits.float()
        norm = logits.logsumexp(-1, keepdim=True)
        return logits.gather(-1, targets) - norm, _entropy(logits.detach(), norm.detach()) if self._entropy else None


class ScoreForward(nn.Module):
    """Tokens -> scores, at each row's last token."""

    def __init__(self, model: nn.Module, *, autocast: bool) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Right-padded ids and mask [B, T] -> [B, L] float32."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self._autocast):
            return sequence_scores(self.model, ids, mask).float()


def _entropy(logits: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    """-Σ p log p = log Z - Σ p · logit, in nats: logits [B, T, V], log Z [B, T, 1] -> [B, T]."""
    return norm.squeeze(-1) - torch.einsum("btv,btv->bt", (logits - norm).exp(), logits)
