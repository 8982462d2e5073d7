"""Calls of sample and what they give: both ways, with the SDK at the other end, and refused where they are broken."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import EncodedTextChunk, ModelInput, SampledSequence, SampleResponse, SamplingParams

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

import contextlib

from tinker.proto.response_conv import deserialize_sample_response

from reward_loop.rinker.wire.protocol import messages, serialized
from reward_loop.rinker.wire.sample_body import Sample
from reward_loop.rinker.wire.sample_response import decode_sample_response, encode_sample_response

RESPONSE = SampleResponse(
    [
        SampledSequence("stop", [3, 1, 2], [-0.5, -1.0, -math.inf], "a", [[(3, -0.5), (7, -2.0)], None, [(2, -0.25)]]),
        SampledSequence("length", [], [], "b", [None]),
        SampledSequence("length", [2**31 - 1], None, "c"),
    ],
    [None, -0.5, None, -2.0],
    [None, [(1, -0.5)], [(2, -0.5), (0, -1.0)]],
)


def test_a_response_comes_back_as_it_was_sent() -> None:
    assert decode_sample_response(encode_sample_response(RESPONSE), ["a", "b", "c"]) == RESPONSE


def test_what_was_not_asked_for_is_none_and_not_empty() -> None:
    bare = SampleResponse([SampledSequence("stop", [1], sequence_id="x")])
    assert decode_sample_response(encode_sample_response(bare), ["x"]) == bare


def test_the_sdk_reads_a_response_as_it_was_meant() -> None:
    theirs = deserialize_sample_response(encode_sample_response(RESPONSE))
    assert [(one.stop_reason, one.tokens) for one in theirs.sequences] == [
        (one.stop_reason, one.tokens) for one in RESPONSE.sequences
    ]
    assert theirs.sequences[0].logprobs == RESPONSE.sequences[0].logprobs
    assert theirs.sequences[0].topk_logprobs == RESPONSE.sequences[0].topk_logprobs
    assert theirs.sequences[2].logprobs is None
    assert theirs.prompt_logprobs == RESPONSE.prompt_logprobs
    assert theirs.topk_prompt_logprobs == RESPONSE.topk_prompt_logprobs


def broken(change: str) -> bytes:
    message = messages.SampleResponse()
    sequence: Any = message.sequences.add(tokens=np.asarray([1, 2], "<i4").tobytes())
    match change:
        case "logprobs":
            sequence.logprobs = np.asarray([0.5], "<f4").tobytes()
        case "reason":
            sequence.stop_reason = 7
        case "topk":
            sequence.topk_sampled_logprobs.CopyFrom(messages.TopkLogprobs(k=3, length=5))
        case _:
            message.sequences.add()
    return serialized(message)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("logprobs", "2 tokens and 1 logprobs"),
        ("reason", "unknown reason 7"),
        ("topk", "for 5 x 3 cells"),
        ("count", "1 sequences were promised, 2 have come"),
    ],
)
def test_a_response_that_contradicts_itself_is_refused(change: str, why: str) -> None:
    with pytest.raises(DataError, match=why):
        decode_sample_response(broken(change), ["a"])


@given(st.data())
def test_a_response_of_which_bytes_were_changed_is_a_response_or_refused(draw: st.DataObject) -> None:
    body = bytearray(encode_sample_response(RESPONSE))
    for _ in range(draw.draw(st.integers(1, 4))):
        body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        decode_sample_response(bytes(body), ["a", "b", "c"])


@pytest.mark.parametrize("stop", [None, [], "end", ["a", "b"], [1, 2]])
def test_a_call_comes_back_as_it_was_sent(stop: Any) -> None:
    prompt = ModelInput([EncodedTextChunk([1, 2]), EncodedTextChunk([3])])
    params = SamplingParams(max_tokens=5, seed=2**62, stop=stop, temperature=0.0, top_k=3, top_p=0.5)
    call = SampleCall(prompt, 4, params, True, 2, 3)
    sent = json.dumps(Sample.of("s", 9, call).to_json()).encode()
    assert Sample.read(sent).call(max_samples=4) == call


def asked(**fields: Any) -> bytes:
    body = {"sampling_session_id": "s", "seq_id": 0, "prompt": {"chunks": [{"tokens": [1]}]}, "sampling_params": {}}
    return json.dumps(body | fields).encode()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"num_samples": 0}, "num_samples=0 must be from 1 to 16"),
        ({"num_samples": 17}, "num_samples=17"),
        ({"prompt": {"chunks": [{"tokens": [-1]}]}}, "no token"),
        ({"prompt": {"chunks": [{"tokens": [2**31]}]}}, "no token"),
        ({"prompt": {"chunks": [{"type": "image", "tokens": [1]}]}}, "encoded_text"),
        ({"prompt": {"chunks": [{"tokens": ["1"]}]}}, "tokens.0"),
        ({"prompt": None}, "prompt"),
        ({"sampling_params": {"temperature": float("nan")}}, "temperature"),
        ({"sampling_params": {"seed": 2**63}}, "seed"),
        ({"sampling_params": {"top_k": -(2**70)}}, "top_k"),
        ({"sampling_params": {"unheard_of": 1}}, "unheard_of"),
        ({"prompt_alt_tokens_k": 2}, "prompt_alt_tokens_k"),
        ({"prompt_logprobs_last_n": 2}, "prompt_logprobs_last_n"),
        ({"record_stability_info": True}, "record_stability_info"),
        ({"target_prompt_logprobs": {}}, "target_prompt_logprobs"),
        ({"seq_id": -1}, "seq_id"),
        ({"sampling_session_id": ""}, "sampling_session_id"),
        ({"new": 1}, "new"),
    ],
)
def test_a_call_that_can_not_be_done_as_it_is_asked_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        Sample.read(asked(**fields)).call(max_samples=16)


@pytest.mark.parametrize("params", [SamplingParams(temperature=math.nan), SamplingParams(top_k="3")])  # type: ignore[arg-type]
def test_a_call_that_no_server_would_read_is_not_sent(params: SamplingParams) -> None:
    with pytest.raises(DataError, match="can't be sent as Sample"):
        Sample.of("s", 0, SampleCall(ModelInput.from_ints([1]), 1, params))
