"""Policies for the tests of samplers, and what the model itself says of a text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import ModelInput, SamplingParams


def policy_with_learned_positions(directory: Path, *, positions: int) -> str:
    """Write a GPT-2 of 16 tokens to a directory, whose name is returned; no text of it is longer than `positions`."""
    sizes: dict[str, Any] = {"vocab_size": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": positions}
    configuration, architecture = list[Any]([GPT2Config, GPT2LMHeadModel])  # untyped
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = architecture(configuration(**sizes, bos_token_id=None, eos_token_id=None, initializer_range=0.2))
    model.save_pretrained(directory)
    return str(directory)


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
