"""A call as a vLLM server is asked it, and what its reply means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.sampling.vllm_wire import request_of, response_of
from reward_loop.rinker.types import ModelInput, SamplingParams


def call_of(**params: Any) -> SampleCall:
    return SampleCall(ModelInput.from_ints([5, 6]), 1, SamplingParams(**params))


def reply_of(**choice: Any) -> str:
    whole = {"finish_reason": "length", "token_ids": [7, 8], "logprobs": {"token_logprobs": [-1.0, -2.0]}} | choice
    return json.dumps({"id": "cmpl", "choices": [whole]})


@pytest.mark.parametrize(
    ("stop", "asked"),
    [
        (None, {"ignore_eos": False}),
        ([], {"ignore_eos": True, "stop": [], "stop_token_ids": []}),
        ("a", {"ignore_eos": False, "stop": ["a"], "stop_token_ids": []}),
        (["a", "b"], {"ignore_eos": False, "stop": ["a", "b"], "stop_token_ids": []}),
        ([3], {"ignore_eos": False, "stop": [], "stop_token_ids": [3]}),
    ],
)
def test_the_models_end_ends_a_sequence_unless_nothing_is_to(stop: Any, asked: dict[str, Any]) -> None:
    body = request_of("policy", call_of(stop=stop), 4)
    assert {name: body[name] for name in ("ignore_eos", "stop", "stop_token_ids") if name in body} == asked


def test_what_a_model_would_set_itself_is_always_sent() -> None:
    body = request_of("policy", call_of(temperature=0.5, seed=3), 4)
    assert body["prompt"] == [5, 6]
    assert (body["max_tokens"], body["temperature"], body["top_k"], body["top_p"], body["seed"]) == (4, 0.5, -1, 1.0, 3)
    assert (body["repetition_penalty"], body["min_p"], body["logprobs"]) == (1.0, 0.0, 0)
    assert "prompt_logprobs" not in body


def test_a_reply_without_logprobs_has_none_for_another_to_fill_in() -> None:
    sequence = response_of(call_of(), reply_of(logprobs=None)).sequences[0]
    assert (sequence.tokens, sequence.logprobs, sequence.stop_reason) == ([7, 8], None, "length")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("{}", "choices"),
        ("nonsense", "no completion with token ids"),
        (json.dumps({"choices": []}), "0 sequences came back and 1 were asked for"),
        (reply_of(token_ids=None), "token_ids"),
        (reply_of(token_ids=[7]), "1 tokens have 2 log-probabilities"),
        (reply_of(finish_reason="abort"), "'abort'"),
    ],
)
def test_a_reply_that_is_something_else_is_the_servers_error(reply: str, said: str) -> None:
    with pytest.raises(RequestFailedError, match=said) as caught:
        response_of(call_of(), reply)
    assert caught.value.category == "server"


def test_a_prompt_whose_logprobs_are_lacking_is_the_servers_error() -> None:
    call = SampleCall(ModelInput.from_ints([5, 6]), 1, SamplingParams(), include_prompt_logprobs=True)
    with pytest.raises(RequestFailedError, match="2 tokens of the prompt have 0"):
        response_of(call, reply_of())
