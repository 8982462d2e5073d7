"""The likeliest tokens at each position, as a message: two matrices whose empty cells hold a token and a number of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reward_loop.errors import DataError
from reward_loop.rinker.wire.protocol import messages
from reward_loop.rinker.wire.tensors import numbers

Topk = Sequence[Sequence[tuple[int, float]] | None]
"""Token and log-probability of the likeliest at each position; None where they are not known."""

_NO_TOKEN = 0
_NO_LOGPROB = -99999.0


def encode_topk(positions: Topk) -> messages.TopkLogprobs:
    """Return the likeliest tokens as a message."""
    # At least one column: of a matrix without any a client reads that nothing was asked for.
    width = max((len(position) for position in positions if position is not None), default=0) or 1
    tokens = np.full((len(positions), width), _NO_TOKEN, "<i4")
    logprobs = np.full((len(positions), width), _NO_LOGPROB, "<f4")
    for row, position in enumerate(positions):
        for column, (token, logprob) in enumerate(position or ()):
            tokens[row, column], logprobs[row, column] = token, logprob
    return messages.TopkLogprobs(token_ids=tokens.tobytes(), logprobs=logprobs.tobytes(), k=width, length=len(positions))


def decode_topk(message: messages.TopkLogprobs, what: str) -> list[list[tuple[int, float]] | None]:
    """Return a message as the likeliest tokens. Raises DataError where its parts do not fit each other."""
    tokens = numbers(message.token_ids, messages.DTYPE_INT32, f"token_ids of {what}").tolist()
    logprobs = numbers(message.logprobs, messages.DTYPE_FLOAT32, f"logprobs of {what}").tolist()
    length, width = message.length, message.k
    if not len(tokens) == len(logprobs) == length * width:
        raise DataError(f"{what} has {len(tokens)} tokens and {len(logprobs)} logprobs for {length} x {width} cells")
    cells = list(zip(tokens, logprobs, strict=True))
    return [_filled(cells[start : start + width]) for start in range(0, length * width, width)] if width else [None] * length


def _filled(cells: list[tuple[int, float]]) -> list[tuple[int, float]] | None:
    while cells and cells[-1] == (_NO_TOKEN, _NO_LOGPROB):
        cells.pop()
    return cells or None
