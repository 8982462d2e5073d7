"""Asking the servers of a reward model what their weights make of preferences."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from reward_loop import VLLMRewardClient
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.losses import pairwise_accuracy


def served_scores(address: str, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the scores that the server (or router) at "host:port" gives to rows of token ids: N rows -> [N]."""
    client = VLLMRewardClient(address=address)
    return torch.tensor(client.score_batch_sync([list(row) for row in rows], normalize=False))


def served_accuracy(address: str, pairs: Sequence[EncodedPair]) -> float:
    """Return the share of pairs whose chosen answer the server at "host:port" scores higher."""
    scores = served_scores(address, [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs])
    return pairwise_accuracy(*scores.chunk(2))
