"""What a rubric gives: a finite number, with whatever it says besides."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Self

from reward_loop.errors import InvalidReward, Unscorable
from reward_loop.outcome import finite


class Score(float):
    """A score, and in `extra` what else the rubric returned with it.

    It is a number, and `await` gives it back: code that awaits every rubric works with those that need not be awaited.
    """

    extra: Mapping[str, Any]

    def __new__(cls, value: float, extra: Mapping[str, Any] | None = None) -> Self:
        """Return the score of this value; it must be finite."""
        score = super().__new__(cls, value)
        score.extra = extra or {}
        return score

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from ()  # what makes it a generator
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[float, Mapping[str, Any]]]:
        return type(self), (float(self), self.extra)


_NUMBERS = frozenset({float, bool, int})


def score_of(result: object) -> Score:
    """Return what a rubric returned as a score: a number (also one of numpy or torch), or a mapping with "score".

    Raises Unscorable for None, which says that this can't be judged, and InvalidReward for NaN, infinity, text and all else.
    """
    if type(result) in _NUMBERS:  # most are
        return Score(finite(result))
    if isinstance(result, Score):
        return result
    extra: dict[str, Any] = {}
    if isinstance(result, Mapping):
        if "score" not in result:
            raise InvalidReward(f'a mapping from a rubric needs the key "score"; it has {list(result)!r:.200}')
        extra = {key: value for key, value in result.items() if key != "score"}
        result = result["score"]
    if result is None:
        raise Unscorable("the rubric returned None: this can't be judged")
    return Score(finite(result), extra)
