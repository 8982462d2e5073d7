"""A digest of a bucket that costs little more than one read of its memory, and is the same on every device.

The bytes, with zeros behind the end, are read as tables of 64-bit words, each in two ways: as rows of WIDTH words, and as rows
of one word more. The sums of the narrow rows and of the wide columns, modulo 2**64, and the length are hashed by BLAKE2. So any
changed byte is noticed, and any two words that changed places: those of different rows change the rows' sums, those of one row
are less than a wide row apart and change the columns'. Rows that changed places are noticed even where they have the same sum,
as in an identity matrix, since each comes into other columns. It guards against accidents, not against an attacker.

Invariant: only integer sums that wrap around, so that neither device, threads nor the order of summation matter.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

WIDTH = 384
WORDS = WIDTH * (WIDTH + 1)
"""Of a table. 1.1 MiB: what the sums of its rows have read, in order, a core's cache still holds for those of its columns."""
_WORD = 8
_DIGEST_BYTES = 16


def digest_of(bucket: torch.Tensor) -> str:
    """Return the digest of a contiguous uint8 tensor of one dimension, as text of 32 hexadecimal digits."""
    size = bucket.numel()
    sums: list[torch.Tensor] = []
    for begin in range(0, size, WORDS * _WORD):
        words = _words(bucket[begin : begin + WORDS * _WORD])
        sums += words.view(-1, WIDTH).sum(1), words.view(-1, WIDTH + 1).sum(0)
    hashed = hashlib.blake2b(str(size).encode(), digest_size=_DIGEST_BYTES)
    if sums:
        plain: Any = torch.cat(sums).cpu().view(torch.uint8).numpy()
        hashed.update(plain)
    return hashed.hexdigest()


def _words(data: torch.Tensor) -> torch.Tensor:
    """Return the words of a table; of a copy where the bytes are too few, or are not where words may be."""
    if data.numel() < WORDS * _WORD or data.data_ptr() % _WORD or data.storage_offset() % _WORD:
        whole = torch.zeros(WORDS * _WORD, dtype=torch.uint8, device=data.device)
        whole[: data.numel()] = data
        data = whole
    return data.view(torch.int64)
