"""A call of a sampler as vLLM's /v1/completions has it, and its reply. Pure.

Invariants: tokens go in and come out as ids, never as text; every setting that changes what is drawn is sent, since a server
takes its model's own for those that are not; log-probabilities are the model's, before temperature, top_k and top_p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import SampledSequence, SampleResponse

_ID = "token_id:"

TopLogprobs = list[tuple[int, float]]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Logprob(_Reply):
    logprob: float


class _Logprobs(_Reply):
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(_Reply):
    finish_reason: str | None
    token_ids: list[int]
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[int, _Logprob] | None] | None = None


class _Completion(_Reply):
    id: str = ""
    choices: list[_Choice]


def request_of(model: str, call: SampleCall, max_tokens: int) -> dict[str, object]:
    """Return the body of the request for a call that has been checked."""
    params = call.params
    body: dict[str, object] = {
        "model": model,
        "prompt": call.prompt.to_ints(),
        "n": call.num_samples,
        "max_tokens": max_tokens,
        "seed": params.seed,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": call.topk_sample_logprobs,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,  # a stop text may be one
        "include_stop_str_in_output": True,
        **_stopping(params.stop),
    }
    if call.include_prompt_logprobs or call.topk_prompt_logprobs:
        body["prompt_logprobs"] = call.topk_prompt_logprobs
    return body


def response_of(call: SampleCall, body: str) -> SampleResponse:
    """Return what a reply says; RequestFailedError "server" where it is not what was asked for."""
    try:
        completion = _Completion.model_validate_json(body)
        if len(completion.choices) != call.num_samples:
            raise ValueError(f"{len(completion.choices)} sequences came back and {call.num_samples} were asked for")
        sequences = [_sequence(call, choice, f"{completion.id}-{n}") for n, choice in enumerate(completion.choices)]
        prompt = _of_prompt(call, completion.choices[0].prompt_logprobs)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3])
        raise RequestFailedError(
            f"the reply is no completion with token ids (vLLM 0.32 or newer): {why}", category="server"
        ) from None
    except ValueError as error:
        raise RequestFailedError(f"the reply does not fit the request: {error}", category="server") from None
    return SampleResponse(sequences, *prompt)


def _stopping(stop: str | Sequence[str] | Sequence[int] | None) -> dict[str, object]:
    if stop is None:
        return {"ignore_eos": False}
    wanted = [stop] if isinstance(stop, str) else list(stop)
    # As with the other sampler, the model's own end ends a sequence too, unless nothing is to end it.
    texts = [each for each in wanted if isinstance(each, str)]
    tokens = [each for each in wanted if not isinstance(each, str)]
    return {"ignore_eos": not wanted, "stop": texts, "stop_token_ids": tokens}


def _sequence(call: SampleCall, choice: _Choice, name: str) -> SampledSequence:
    if choice.finish_reason not in ("stop", "length"):
        raise ValueError(f"a sequence ended with {choice.finish_reason!r}, neither stop nor length")
    logprobs = choice.logprobs
    if logprobs is not None and len(logprobs.token_logprobs) != len(choice.token_ids):
        raise ValueError(f"{len(choice.token_ids)} tokens have {len(logprobs.token_logprobs)} log-probabilities")
    topk: list[TopLogprobs | None] | None = None
    if call.topk_sample_logprobs and logprobs is not None and logprobs.top_logprobs is not None:
        topk = [_top(_by_id(each), call.topk_sample_logprobs) for each in logprobs.top_logprobs]
    values = None if logprobs is None else logprobs.token_logprobs
    return SampledSequence("stop" if choice.finish_reason == "stop" else "length", choice.token_ids, values, name, topk)


def _of_prompt(
    call: SampleCall, given: list[dict[int, _Logprob] | None] | None
) -> tuple[list[float | None] | None, list[TopLogprobs | None] | None]:
    """Return the log-probability of each token of the prompt, and the most likely ones in its place."""
    if not (call.include_prompt_logprobs or call.topk_prompt_logprobs):
        return None, None
    tokens = call.prompt.to_ints()
    if given is None or len(given) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens of the prompt have {0 if given is None else len(given)} log-probabilities")
    own = [None if each is None else each[token].logprob for token, each in zip(tokens, given, strict=True)]
    found = [None if each is None else {token: value.logprob for token, value in each.items()} for each in given]
    topk = [_top(each, call.topk_prompt_logprobs) for each in found] if call.topk_prompt_logprobs else None
    return own if call.include_prompt_logprobs else None, topk


def _by_id(given: Mapping[str, float] | None) -> dict[int, float] | None:
    return None if given is None else {int(name.removeprefix(_ID)): value for name, value in given.items()}


def _top(given: Mapping[int, float] | None, count: int) -> TopLogprobs | None:
    """Return the `count` most likely; the drawn token, which a server adds where it is none of them, is left out."""
    if given is None:
        return None
    return sorted(given.items(), key=lambda each: -each[1])[:count]
