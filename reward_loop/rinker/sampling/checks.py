"""Whether a call can be answered: every sampler refuses the same ones, in the same words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.sampling.profile import ModelProfile
from reward_loop.rinker.types import SamplingParams

MAX_TOP_LOGPROBS = 100
MAX_SAMPLES = 16_384
"""Of one call: each costs memory as soon as it is asked for."""


def checked_prompt(call: SampleCall, profile: ModelProfile) -> list[int]:
    """Return the tokens of the prompt. Raises RequestFailedError("user") for a call that can't be answered as it is."""
    prompt = call.prompt.to_ints()
    _check_prompt(prompt, profile)
    _check_params(call.params, profile)
    if not 1 <= call.num_samples <= MAX_SAMPLES:
        raise _wrong(f"num_samples={call.num_samples}; give 1 to {MAX_SAMPLES}")
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        count = getattr(call, name)
        if not 0 <= count <= min(MAX_TOP_LOGPROBS, profile.vocabulary):
            raise _wrong(f"{name}={count}; give 0 to {min(MAX_TOP_LOGPROBS, profile.vocabulary)}")
    return prompt


def token_budget(call: SampleCall, profile: ModelProfile) -> int:
    """Return how many tokens a sequence of this call may have: `max_tokens`, or what the context has room for, at least 1.

    The last token is drawn and not read, so that a prompt as long as the context still has a next one.
    """
    asked = call.params.max_tokens
    if profile.context is None:
        if asked is None:
            raise _wrong(
                f"max_tokens=None, and the configuration of {profile.name} does not say how long its context is; give a number"
            )
        return asked
    room = max(1, profile.context - call.prompt.length)
    return room if asked is None else min(asked, room)


def _check_prompt(prompt: Sequence[int], profile: ModelProfile) -> None:
    if not prompt:
        raise _wrong("the prompt is empty; give at least one token")
    if profile.context is not None and len(prompt) > profile.context:
        raise _wrong(f"the prompt has {len(prompt)} tokens, and the context of {profile.name} is {profile.context}; shorten it")
    for position, token in enumerate(prompt):
        if not 0 <= token < profile.vocabulary:
            where = f"token {token} at position {position} of the prompt"
            raise _wrong(f"{where} is not below {profile.vocabulary}, the vocabulary of {profile.name}")


def _check_params(params: SamplingParams, profile: ModelProfile) -> None:
    if params.max_tokens is not None and params.max_tokens < 1:
        raise _wrong(f"max_tokens={params.max_tokens}; give at least 1, or None for what the context has room for")
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        raise _wrong(f"temperature={params.temperature}; give 0 (greedy) or more")
    if params.top_k != -1 and params.top_k < 1:
        raise _wrong(f"top_k={params.top_k}; give at least 1, or -1 for no limit")
    if not 0 < params.top_p <= 1:
        raise _wrong(f"top_p={params.top_p}; give a share above 0, at most 1")
    for stop in [params.stop] if isinstance(params.stop, str) else params.stop or ():
        if stop == "":
            raise _wrong("an empty text among `stop` would end every sequence at once; leave it out")
        if isinstance(stop, int) and not 0 <= stop < profile.vocabulary:
            raise _wrong(f"stop token {stop} is not below {profile.vocabulary}, the vocabulary of {profile.name}")


def _wrong(message: str) -> RequestFailedError:
    return RequestFailedError(message, category="user")
