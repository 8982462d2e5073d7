"""Decoding of byte-level tokens (GPT-2, Llama 3, Qwen) for many rows at once, by table.

Each token of such a tokenizer stands for some bytes, and a text is the bytes of its tokens read as UTF-8. With the bytes of
all tokens in one array, a batch is decoded by a handful of numpy calls, without a Python object per token. Invariant: the
text is what the tokenizer itself makes of the ids; `table_of` gives no table to a tokenizer for which that does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reward_loop.data.columns import Column
from reward_loop.errors import DataError

_PROBES = 4096


class ByteTable:
    """The bytes of every token, joined: token i has `sizes[i]` of them from `starts[i]` on; unknown ids have none."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(tokens), np.uint8)
        self._sizes = np.array([*map(len, tokens), 0], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def decode(self, rows: Sequence[Column]) -> list[str]:
        """Return the text of each row of token ids (1-D integer arrays); DataError if one is negative."""
        if not rows:
            return []
        ids = np.minimum(np.concatenate(rows, dtype=np.int64), len(self._sizes) - 1)
        if ids.min(initial=0) < 0:
            raise DataError(f"{int(ids.min())} is no token id; pad with the tokenizer's pad token, and mask it")
        sizes = self._sizes[ids]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        # Where each byte of the text lies in the table: where its token begins, plus its place within the token.
        places = np.repeat(self._starts[ids] - ends[:-1], sizes) + np.arange(ends[-1])
        text = self._bytes[places].tobytes()
        row_ends = ends[np.cumsum([len(row) for row in rows])].tolist()
        return [
            text[start:end].decode("utf-8", errors="replace") for start, end in zip([0, *row_ends[:-1]], row_ends, strict=True)
        ]


def table_of(tokenizer: Any) -> ByteTable | None:
    """Return the table of a byte-level tokenizer, special tokens left out; None for any other kind."""
    from tokenizers import decoders
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    backend = getattr(tokenizer, "backend_tokenizer", None)
    own = all(
        getattr(type(tokenizer), name, None) is getattr(PreTrainedTokenizerFast, name, None) for name in ("decode", "_decode")
    )
    if backend is None or not own or tokenizer.clean_up_tokenization_spaces:
        return None
    if not isinstance(backend.decoder, decoders.ByteLevel):
        return None
    bytes_of = {char: bytes([byte]) for byte, char in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
    tokens = [b""] * (max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1)
    for token, number in backend.get_vocab(with_added_tokens=True).items():
        # A token with a character that is none of the 256 was added as plain text.
        plain = any(char not in bytes_of for char in token)
        tokens[number] = token.encode() if plain else b"".join(map(bytes_of.__getitem__, token))
    for number, added in backend.get_added_tokens_decoder().items():
        if added.special:
            tokens[number] = b""
    table = ByteTable(tokens)
    return table if _agrees(table, tokenizer, len(tokens)) else None


def _agrees(table: ByteTable, tokenizer: Any, count: int) -> bool:
    """Whether the table and the tokenizer decode the same of the vocabulary to the same text."""
    ids: Column = np.unique(np.linspace(0, max(0, count - 1), _PROBES, dtype=np.int64))
    expected = tokenizer.decode(ids.tolist(), skip_special_tokens=True)
    return table.decode([ids]) == [expected]
