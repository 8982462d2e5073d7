"""Which pairs each step of a training sees, and pairs as padded tensors.

Invariants: the pairs of a step depend on the seed and the step's number alone, so that a resumed run sees what the first would
have seen; every pair comes once an epoch; padding is on the right, where it can't change the score of a causal model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from reward_loop.training.encoding import EncodedPair

NO_LABEL = -1
"""In a batch's labels: the pair says nothing of a label."""


@dataclass(frozen=True, slots=True)
class PairBatch:
    """B pairs: rows 0 … B-1 are the chosen answers, rows B … 2B-1 the rejected ones, in the same order."""

    input_ids: torch.Tensor
    """[2B, T] int64."""
    attention_mask: torch.Tensor
    """[2B, T] int64; 1 where there is a token."""
    margins: torch.Tensor
    """[B] float32."""
    labels: torch.Tensor
    """[B] int64; NO_LABEL where the pair names none."""

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.margins)


def collate(pairs: Sequence[EncodedPair], pad_token_id: int, device: torch.device | str = "cpu") -> PairBatch:
    """Pad the pairs on the right, to the longest answer among them."""
    rows = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    ids, mask = padded(rows, pad_token_id)
    margins = torch.tensor([pair.margin for pair in pairs], dtype=torch.float32)
    labels = torch.tensor([NO_LABEL if pair.label is None else pair.label for pair in pairs], dtype=torch.int64)
    return PairBatch(ids.to(device), mask.to(device), margins.to(device), labels.to(device))


def padded(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask of these rows, [N, T] int64 each."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *([pad_token_id] * (width - len(row)))] for row in rows], dtype=torch.int64)
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(width) < lengths[:, None]).long()


class BatchOrder:
    """The rows of each step: one random permutation of all pairs after another, cut into steps of `batch_pairs`."""

    def __init__(self, pairs: int, batch_pairs: int, seed: int) -> None:
        self._pairs, self._batch_pairs, self._seed = pairs, batch_pairs, seed
        self._epoch, self._permutation = -1, list[int]()

    def rows(self, step: int) -> list[int]:
        """Return the numbers of the pairs of this step (from 0)."""
        begin = step * self._batch_pairs
        return [self._row(place) for place in range(begin, begin + self._batch_pairs)]

    def _row(self, place: int) -> int:
        epoch, at = divmod(place, self._pairs)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed((self._seed * 1_000_003 + epoch) % 2**63)
            self._epoch, self._permutation = epoch, torch.randperm(self._pairs, generator=generator).tolist()
        return self._permutation[at]


def micro_batches(rows: Sequence[int], pairs: Sequence[EncodedPair], size: int, *, by_length: bool) -> list[list[int]]:
    """Cut a step's rows into micro-batches of up to `size`; `by_length` puts pairs of like length together, to pad less.

    The step's gradient does not depend on the cut: it is of the mean over all of its pairs.
    """
    order = sorted(rows, key=lambda row: -pairs[row].longest) if by_length else list(rows)
    return [order[begin : begin + size] for begin in range(0, len(order), size)]
