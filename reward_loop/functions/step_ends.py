"""Where in a response's tokens each of its characters ends.

Invariant: a character belongs to the first token after which it is known, also where several tokens make one character or
one token ends a step and begins the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from reward_loop.errors import DataError


def end_tokens(tokenizer: Any, ids: Sequence[int], text: str, ends: Sequence[int]) -> list[int]:
    """Return for each of the offsets `ends` (1 … len(text)) the index of the token with which the text before it is complete.

    DataError where `text` is not what the tokenizer makes of `ids`, less special tokens.
    """
    known = _known_by_stream(tokenizer, ids, text)
    if known is None:
        if tokenizer.decode(ids, skip_special_tokens=True) != text:
            raise DataError(
                f"the response's {len(ids)} tokens do not read as its text {text!r:.100}, so its steps can't be found in them; "
                "leave out the column solution_str, or set actor_rollout_ref.model.path to the policy's tokenizer"
            )
        return [_by_bisection(tokenizer, ids, text, end) for end in ends]
    return [min(bisect_left(known, end), len(ids) - 1) for end in ends]


def _known_by_stream(tokenizer: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """Return how many characters are known after each token; None where streaming reads another text."""
    from tokenizers.decoders import DecodeStream

    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is None:
        return None
    stream = DecodeStream(skip_special_tokens=True)
    known: list[int] = []
    so_far = 0
    try:
        for token in ids:
            chunk = stream.step(backend, token) or ""
            if not text.startswith(chunk, so_far):
                return None
            so_far += len(chunk)
            known.append(so_far)
    except Exception:  # noqa: BLE001 - the library raises plain Exception for a prefix that changes; decoding whole prefixes is slower
        return None
    # What the end of the stream left open is the replacement of an incomplete character.
    return known if set(text[so_far:]) <= {"\ufffd"} else None


def _by_bisection(tokenizer: Any, ids: Sequence[int], text: str, end: int) -> int:
    """Return the first token after which the decoded text agrees with `text` up to `end`."""

    def known(count: int) -> bool:
        return str(tokenizer.decode(ids[:count], skip_special_tokens=True))[:end] == text[:end]

    return bisect_left(range(1, len(ids)), True, key=known)
