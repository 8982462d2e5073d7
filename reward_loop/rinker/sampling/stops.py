"""When a sequence ends: at a token, or as soon as a text has been written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reward_loop.rinker.sampling.profile import ModelProfile
from reward_loop.rinker.types import SamplingParams

Decode = Callable[[Sequence[int]], str]

_MARGIN = 4
"""Tokens looked at beyond the length of a text: a character may be spread over so many."""


class Stops:
    """The tokens and texts that end the sequences of a call.

    `stop=None` means the end tokens of the model, `[]` nothing at all; where tokens or texts are named, the model's end tokens
    end a sequence as well: behind them it writes nothing that was ever trained.
    """

    def __init__(self, params: SamplingParams, profile: ModelProfile, decode: Decode) -> None:
        stop = [params.stop] if isinstance(params.stop, str) else params.stop
        named = [] if stop is None else list(stop)
        ends = profile.end_tokens if stop is None or named else frozenset[int]()
        self.tokens = ends | {one for one in named if isinstance(one, int)}
        self.texts = tuple(one for one in named if isinstance(one, str))
        self._window = max((len(text.encode()) for text in self.texts), default=0) + _MARGIN
        self._decode = decode

    def end(self, tokens: Sequence[int]) -> bool:
        """Say whether the last token ends the sequence."""
        if tokens[-1] in self.tokens:
            return True
        if not self.texts:
            return False
        # Every token adds a byte at least, so the text lies within the last ones: what came before need not be decoded again.
        tail = self._decode(tokens[-self._window :])
        return any(text in tail for text in self.texts)
