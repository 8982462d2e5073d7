"""The tokens that a model reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class EncodedTextChunk:
    """Some tokens."""

    tokens: Sequence[int]

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ModelInput:
    """Tokens in chunks; the model reads them one behind the other."""

    chunks: Sequence[EncodedTextChunk]

    @classmethod
    def from_ints(cls, tokens: Iterable[int]) -> Self:
        """Return an input of one chunk."""
        return cls([EncodedTextChunk(list(tokens))])

    @classmethod
    def empty(cls) -> Self:
        """Return an input without a token."""
        return cls([])

    def to_ints(self) -> list[int]:
        """Return all tokens."""
        return [token for chunk in self.chunks for token in chunk.tokens]

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return sum(chunk.length for chunk in self.chunks)

    def append(self, chunk: EncodedTextChunk) -> ModelInput:
        """Return an input with this chunk behind the others."""
        return ModelInput([*self.chunks, chunk])

    def append_int(self, token: int) -> ModelInput:
        """Return an input with this token behind the others."""
        return self.append(EncodedTextChunk([token]))
