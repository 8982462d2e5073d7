"""Which token comes next: each sequence by its own temperature, top_k, top_p and random number."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reward_loop.rinker.types import SamplingParams


@dataclass(frozen=True, slots=True)
class Drawing:
    """The parameters of the sequences of a batch, one value for each."""

    temperatures: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor

    @classmethod
    def of(cls, params: list[SamplingParams], vocabulary: int, device: torch.device) -> Drawing:
        """Collect the parameters of sequences."""
        top_k = [vocabulary if one.top_k == -1 else min(one.top_k, vocabulary) for one in params]
        return cls(
            torch.tensor([float(one.temperature) for one in params], device=device),
            torch.tensor(top_k, device=device),
            torch.tensor([float(one.top_p) for one in params], dtype=torch.float64, device=device),
        )

    def select(self, rows: torch.Tensor) -> Drawing:
        """Keep these sequences."""
        return Drawing(self.temperatures[rows], self.top_k[rows], self.top_p[rows])

    def draw(self, logits: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """Return a token for each sequence, by logits of (sequences, vocabulary); temperature 0 takes the likeliest."""
        greedy = self.temperatures == 0
        likeliest = logits.argmax(-1)
        if bool(greedy.all()):
            return likeliest
        # The largest is subtracted first: a temperature close to 0 must not overflow.
        scaled = logits - logits.amax(-1, keepdim=True)
        scaled = scaled / torch.where(greedy, 1.0, self.temperatures).unsqueeze(-1)
        probs = self._limited(torch.softmax(scaled.double(), dim=-1))
        cumulated = probs.cumsum(-1)
        threshold = uniforms.unsqueeze(-1) * cumulated[:, -1:]
        drawn = torch.searchsorted(cumulated, threshold, right=True).squeeze(-1)
        # Rounding can put the threshold at the very end, where no token is left.
        return torch.where(greedy | (drawn == probs.shape[-1]), likeliest, drawn)

    def _limited(self, probs: torch.Tensor) -> torch.Tensor:
        """Put to 0 what is not among the top_k likeliest, nor among the likeliest that make up top_p of these."""
        vocabulary = probs.shape[-1]
        by_k, by_p = bool((self.top_k < vocabulary).any()), bool((self.top_p < 1).any())
        if not (by_k or by_p):
            return probs
        ranked, order = probs.sort(dim=-1, descending=True, stable=True)
        ranks = torch.arange(vocabulary, device=probs.device)
        ranked = ranked.masked_fill(ranks >= self.top_k.unsqueeze(-1), 0.0)
        before = ranked.cumsum(-1) - ranked
        limit = self.top_p.unsqueeze(-1) * ranked.sum(-1, keepdim=True)
        # The first is always kept; at top_p=1 nothing is cut, whatever the sum's rounding.
        cut = (before >= limit) & (self.top_p < 1).unsqueeze(-1) & (ranks > 0)
        return torch.zeros_like(probs).scatter(-1, order, ranked.masked_fill(cut, 0.0))
