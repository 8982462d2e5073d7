from __future__ import annotations

from collections.abc import Sequence

import pytest

from reward_loop.rinker.sampling.profile import ModelProfile
from reward_loop.rinker.sampling.stops import Stops
from reward_loop.rinker.types import SamplingParams

PROFILE = ModelProfile("a model", vocabulary=256, context=64, end_tokens=frozenset({7}))


def by_bytes(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def end_of(stop: str | list[str] | list[int] | None, tokens: Sequence[int]) -> int | None:
    """At how many tokens a sequence ends."""
    stops = Stops(SamplingParams(stop=stop), PROFILE, by_bytes)
    return next((count for count in range(1, len(tokens) + 1) if stops.end(tokens[:count])), None)


@pytest.mark.parametrize(
    ("stop", "text", "end"),
    [
        (None, b"ab\x07c", 3),
        ([], b"ab\x07c", None),
        ([98], b"ab\x07c", 2),
        ([99], b"ab\x07c", 3),  # the model's end token ends it as well
        ("c", b"ab\x07c", 3),
        ("bc", b"abcd", 3),
        (["zz", "cd"], b"abcd", 4),
        ("ä", "xäy".encode(), 3),  # a character of two tokens
        ("\n\nQ", b"a\n\nB" + b"-" * 50 + b"\n\nQ.", 57),
        ("never", b"abcd", None),
    ],
)
def test_a_sequence_ends_at_the_first_token_or_text(
    stop: str | list[str] | list[int] | None, text: bytes, end: int | None
) -> None:
    assert end_of(stop, list(text)) == end
