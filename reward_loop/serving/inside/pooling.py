"""What a reward server pools, and how scores under another pooling follow from its own.

Invariant: a score is derived only where the result is the one that a server with that pooling would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

Pooling = Literal["LAST", "MEAN", "CLS", "STEP", "ALL"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


@dataclass(frozen=True, slots=True)
class ServerPooling:
    """How a server pools: `own`, and what is needed to derive another pooling from ALL."""

    own: Pooling
    step_tag_id: int | None = None
    linear_head: bool = False
    """Whether the head is one linear layer: only then the mean of the scores is the score of the mean."""

    def unmet(self, asked: Pooling, *, normalize: bool) -> str | None:
        """Return why this server can't pool as asked, and the remedy; None if it can."""
        if asked == self.own or (self.own == "ALL" and asked in ("LAST", "CLS")):
            return None
        start = f"start one with reward_model.scoring.pooling={asked} (vLLM: --pooler-config.pooling_type {asked})"
        if self.own == "ALL" and asked == "STEP":
            return None if self.step_tag_id is not None else f"it knows no step tag: {start}, or give --pooler-config.step_tag_id"
        if self.own == "ALL" and asked == "MEAN":
            if normalize:
                return f"the mean of normalized token scores is not the normalized mean: ask with normalize=false, or {start}"
            return None if self.linear_head else f"the model's head is not known to be linear: {start}"
        return f"{start}, or leave pooling_type out"

    def derived(self, asked: Pooling, scores: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
        """Return the scores (tokens, labels) of one input pooled as asked."""
        if asked == self.own:
            return scores
        if asked == "STEP":
            return scores[[at for at, token in enumerate(token_ids) if token == self.step_tag_id]]
        return {"LAST": lambda: scores[-1], "CLS": lambda: scores[0], "MEAN": lambda: scores.mean(dim=0)}[asked]()
