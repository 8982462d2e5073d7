"""Policies for the tests of samplers, and what the model itself says of a text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import ModelInput, SamplingParams


@functools.cache
def model_of(path: str) -> Any:
    """Load the model of a directory."""
    loader: Any = AutoModelForCausalLM
    return loader.from_pretrained(path).eval()


def scores_of(path: str, tokens: Sequence[int]) -> list[float]:
    """Return the log-probability of each token behind the first, by a pass over the whole text."""
    with torch.inference_mode():
        logprobs = torch.log_softmax(model_of(path)(input_ids=torch.tensor([tokens])).logits[0], dim=-1)
    return [logprobs[at, token].item() for at, token in enumerate(tokens[1:])]


def call(prompt: Sequence[int], samples: int = 1, *, top: int = 0, prompt_scores: bool = False, **params: Any) -> SampleCall:
    """Return a call that nothing ends before four tokens, unless the parameters say otherwise."""
    settings: dict[str, Any] = {"max_tokens": 4, "stop": []}
    chosen = SamplingParams(**settings | params)
    return SampleCall(ModelInput.from_ints(prompt), samples, chosen, prompt_scores, top if prompt_scores else 0, top)
