"""A digest of a bucket that costs little more than one read of its memory, and is the same on every device.

The bytes are laid out as tables of ROWS x COLUMNS words of 64 bits, with zeros behind the end. The sums of each table's columns
and diagonals, modulo 2**64, and the length are hashed by BLAKE2. So any changed byte is noticed, and so are any two words that
changed places: in different columns they change the columns' sums, in one column the diagonals'. Rows that changed places change
these too, even where each of them is but another arrangement of the same words, as in an identity matrix. It guards against
accidents, not against an attacker.

Invariant: only integer sums that wrap around, so that neither device, threads nor the order of summation matter.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

ROWS, COLUMNS = 256, 512
"""1 MiB a table: a core's cache holds it, and the second sums are made there."""
_WORD = 8
_TABLE_BYTES = ROWS * COLUMNS * _WORD
_DIGEST_BYTES = 16


def digest_of(bucket: torch.Tensor) -> str:
    """Return the digest of a contiguous uint8 tensor of one dimension, as text of 32 hexadecimal digits."""
    size = bucket.numel()
    sums: list[torch.Tensor] = []
    for begin in range(0, size, _TABLE_BYTES):
        words = _words(bucket[begin : begin + _TABLE_BYTES])
        # A row begins one word later than a table's would: the words of a diagonal are below each other. All but a few have one.
        diagonals = words.as_strided((ROWS - 1, COLUMNS), (COLUMNS + 1, 1), words.storage_offset())
        sums += words.view(ROWS, COLUMNS).sum(0), diagonals.sum(0)
    hashed = hashlib.blake2b(str(size).encode(), digest_size=_DIGEST_BYTES)
    if sums:
        plain: Any = torch.cat(sums).cpu().view(torch.uint8).numpy()
        hashed.update(plain)
    return hashed.hexdigest()


def _words(data: torch.Tensor) -> torch.Tensor:
    """Return the words of a table; a copy where the bytes are too few, or are not where words may be."""
    if data.numel() < _TABLE_BYTES or data.data_ptr() % _WORD or data.storage_offset() % _WORD:
        whole = torch.zeros(_TABLE_BYTES, dtype=torch.uint8, device=data.device)
        whole[: data.numel()] = data
        data = whole
    return data.view(torch.int64)
