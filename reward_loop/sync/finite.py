"""Finds NaN and infinity in a bucket, in one read of its memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch

from reward_loop.sync.manifest import DTYPES, Piece


def first_not_finite(bucket: torch.Tensor, pieces: Sequence[Piece]) -> str | None:
    """Return the name of the first tensor that has NaN or infinity in this bucket (uint8); None if there is none.

    `pieces` is what lies in the bucket, in order and without gaps.
    """
    # Neighbours of one type are looked at together: a call costs as much as reading 100 KB does.
    for dtype, neighbours in groupby(pieces, key=lambda piece: piece.tensor.dtype):
        run = list(neighbours)
        if _finite(bucket, run[0].in_bucket, run[-1].in_bucket + run[-1].nbytes, dtype):
            continue
        for piece in run:
            if not _finite(bucket, piece.in_bucket, piece.in_bucket + piece.nbytes, dtype):
                return piece.tensor.name
    return None


def _finite(bucket: torch.Tensor, begin: int, end: int, dtype: str) -> bool:
    values = bucket[begin:end].view(DTYPES[dtype])
    # A sum is made faster than the extremes. It is not finite where anything is not; also where finite values add up to too much.
    if math.isfinite(float(values.sum())):
        return True
    low, high = torch.aminmax(values)  # both are NaN where anything is
    return math.isfinite(float(low)) and math.isfinite(float(high))
