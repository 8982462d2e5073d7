"""What was sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

StopReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """One drawn sequence."""

    stop_reason: StopReason
    tokens: list[int]
    """With the token that ended it."""
    logprobs: list[float] | None = None
    """Of each token, by the model itself: temperature, top_k and top_p are not in them."""
    sequence_id: str = ""
    topk_logprobs: list[list[tuple[int, float]] | None] | None = None


@dataclass(frozen=True, slots=True)
class SampleResponse:
    """The sequences that were drawn for one prompt."""

    sequences: Sequence[SampledSequence]
    prompt_logprobs: list[float | None] | None = None
    """Of each token of the prompt; the first has none."""
    topk_prompt_logprobs: list[list[tuple[int, float]] | None] | None = None
