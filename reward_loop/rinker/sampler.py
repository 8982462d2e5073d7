"""What samples: a Hugging Face model in this process, vLLM servers, or a pool of Ray actors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reward_loop.rinker.learner import Weights
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Snapshot:
    """Weights to sample from; two of the same `id` are the same. What was made of one that nobody has any more may be dropped."""

    id: str
    base_model: str
    """A directory or a hub's name; the configuration and the tokenizer are taken from there."""
    version: int = 0
    """How many optimiser steps they have behind them."""
    weights: Weights | Path | None = None
    """The whole model, here or as a directory that holds it; None: the base model's own."""


@dataclass(frozen=True, slots=True)
class SampleCall:
    """What is asked of a sampler."""

    prompt: ModelInput
    num_samples: int
    params: SamplingParams
    include_prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0


class Sampler(Protocol):
    """Draws sequences. Any number of calls at a time; those that can run together do.

    Raises RequestFailedError: "user" for a call that can't be answered as it is, "server" where the sampler failed.
    """

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """Draw `num_samples` sequences from the snapshot's weights, never from a mixture of two."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...
