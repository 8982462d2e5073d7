"""What was sampled, as a message. The ids of the sequences are not in it: clients get them when they ask."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reward_loop.errors import DataError
from reward_loop.rinker.types import SampledSequence, SampleResponse
from reward_loop.rinker.types.sample_response import StopReason
from reward_loop.rinker.wire.datums import decode_tokens, encode_tokens
from reward_loop.rinker.wire.protocol import messages, parsed, serialized
from reward_loop.rinker.wire.tensors import numbers
from reward_loop.rinker.wire.topk import decode_topk, encode_topk

_STOP_REASONS: dict[StopReason, messages.StopReason.ValueType] = {
    "stop": messages.STOP_REASON_STOP,
    "length": messages.STOP_REASON_LENGTH,
}
_NAMES: dict[int, StopReason] = {number: name for name, number in _STOP_REASONS.items()}
_FLOAT32 = np.dtype("<f4")


def encode_sample_response(response: SampleResponse) -> bytes:
    """Return what was sampled as bytes."""
    message = messages.SampleResponse(sequences=map(_encode_sequence, response.sequences))
    if response.prompt_logprobs is not None:
        known = [math.nan if logprob is None else logprob for logprob in response.prompt_logprobs]
        message.prompt_logprobs = np.asarray(known, _FLOAT32).tobytes()
    if response.topk_prompt_logprobs is not None:
        message.topk_prompt_logprobs.CopyFrom(encode_topk(response.topk_prompt_logprobs))
    return serialized(message)


def decode_sample_response(body: bytes, sequence_ids: Sequence[str]) -> SampleResponse:
    """Return bytes as what was sampled. Raises DataError for bytes that are none, or contradict themselves."""
    message = parsed(messages.SampleResponse, body)
    if len(message.sequences) != len(sequence_ids):
        raise DataError(f"{len(sequence_ids)} sequences were promised, {len(message.sequences)} have come")
    sequences = [_decode_sequence(sequence, name) for sequence, name in zip(message.sequences, sequence_ids, strict=True)]
    prompt = topk = None
    if message.HasField("prompt_logprobs"):
        prompt = [None if math.isnan(logprob) else logprob for logprob in _floats(message.prompt_logprobs, "prompt_logprobs")]
    if message.HasField("topk_prompt_logprobs"):
        topk = decode_topk(message.topk_prompt_logprobs, "topk_prompt_logprobs")
    return SampleResponse(sequences, prompt, topk)


def _encode_sequence(sequence: SampledSequence) -> messages.SampledSequence:
    message = messages.SampledSequence(stop_reason=_STOP_REASONS[sequence.stop_reason], tokens=encode_tokens(sequence.tokens))
    if sequence.logprobs is not None:
        message.logprobs = np.asarray(sequence.logprobs, _FLOAT32).tobytes()
    if sequence.topk_logprobs is not None:
        message.topk_sampled_logprobs.CopyFrom(encode_topk(sequence.topk_logprobs))
    return message


def _decode_sequence(message: messages.SampledSequence, name: str) -> SampledSequence:
    if message.stop_reason not in _NAMES:
        raise DataError(f"sequence {name} ended for the unknown reason {message.stop_reason}")
    tokens = decode_tokens(message.tokens, f"sequence {name}")
    logprobs = topk = None
    if message.HasField("logprobs"):
        logprobs = _floats(message.logprobs, f"logprobs of sequence {name}")
        if len(logprobs) != len(tokens):
            raise DataError(f"sequence {name} has {len(tokens)} tokens and {len(logprobs)} logprobs")
    if message.HasField("topk_sampled_logprobs"):
        topk = decode_topk(message.topk_sampled_logprobs, f"topk_sampled_logprobs of sequence {name}")
    return SampledSequence(_NAMES[message.stop_reason], tokens, logprobs, name, topk)


def _floats(raw: bytes, what: str) -> list[float]:
    values: list[float] = numbers(raw, messages.DTYPE_FLOAT32, what).tolist()
    return values
