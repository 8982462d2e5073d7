"""How tokens are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """With the defaults of the Tinker SDK."""

    max_tokens: int | None = None
    """None: as many as the model has room for."""
    seed: int | None = None
    """The same seed draws the same tokens, whatever else is drawn at the same time."""
    stop: str | Sequence[str] | Sequence[int] | None = None
    """Texts or tokens that end a sequence, of which they are the last part. None: the model's end token; []: nothing ends it."""
    temperature: float = 1.0
    top_k: int = -1
    """-1: no limit."""
    top_p: float = 1.0
