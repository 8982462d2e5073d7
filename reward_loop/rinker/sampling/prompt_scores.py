"""The log-probabilities of tokens that are given, and of the likeliest ones at their place."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from reward_loop.rinker.sampling.job import PromptScores, TopLogprobs


def prompt_scores(logits: torch.Tensor, prompt: Sequence[int], top: int) -> PromptScores:
    """Score a prompt by the logits at its positions; there may be padding before it."""
    logprobs = torch.log_softmax(logits[-len(prompt) :][:-1].float(), dim=-1)
    following = torch.tensor(prompt[1:], device=logits.device, dtype=torch.long).unsqueeze(-1)
    scored: list[float] = logprobs.gather(-1, following).squeeze(-1).tolist()
    return PromptScores([None, *scored], [None, *top_logprobs(logprobs, top)] if top else None)


def top_logprobs(logprobs: torch.Tensor, width: int) -> list[TopLogprobs]:
    """Return for each row the `width` likeliest tokens with their log-probabilities, the likeliest first."""
    found_values, found_tokens = logprobs.topk(width, dim=-1)
    return [
        list(zip(tokens, values, strict=True))
        for tokens, values in zip(found_tokens.tolist(), found_values.tolist(), strict=True)
    ]
