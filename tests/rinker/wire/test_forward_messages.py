"""Calls of forward_backward and what they give: both ways, with the SDK at the other end, and refused where they are broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.rinker.types import Datum, EncodedTextChunk, ForwardBackwardOutput, ModelInput, TensorData

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

import contextlib

from tinker import types as official
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_forward_backward_output

from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.forward_call import ForwardCall, decode_forward_call, encode_forward_call
from reward_loop.rinker.wire.forward_output import decode_forward_output, encode_forward_output
from reward_loop.rinker.wire.protocol import messages, parsed, serialized

made_datum: Any = official.Datum
batched_tensor: Any = messages.BatchedTensor


def read(body: bytes, max_bytes: int = 1 << 20) -> ForwardCall:
    return decode_forward_call(parsed(messages.ForwardBackwardRequest, body), Allowance(max_bytes))


def test_a_call_comes_back_as_it_was_sent() -> None:
    data = [
        Datum(
            ModelInput([EncodedTextChunk([1, 2]), EncodedTextChunk([2**31 - 1])]),
            {"target_tokens": TensorData([2, 3, 4], "int64")},
        ),
        Datum(ModelInput.empty(), {}),
    ]
    call = ForwardCall(data, "ppo", {"clip_low_threshold": 0.8, "mode": "a text"}, forward_only=True)
    body = encode_forward_call("m", 7, call)
    message = parsed(messages.ForwardBackwardRequest, body)
    assert (message.model_id, message.seq_id) == ("m", 7)
    assert read(body) == call


def test_what_the_sdk_sends_is_read_as_it_was_meant() -> None:
    datum = made_datum(
        model_input=official.ModelInput.from_ints([5, 6]), loss_fn_inputs={"target_tokens": [6, 7], "advantages": [0.5, -1.0]}
    )
    request = official.ForwardBackwardRequest(
        forward_backward_input=official.ForwardBackwardInput(
            data=[datum], loss_fn="ppo", loss_fn_config={"beta": 2.0, "name": "x"}
        ),
        model_id="m",
        seq_id=3,
    )
    message: Any = forward_backward_request_to_proto(request)
    call = read(message.SerializeToString())
    [got] = call.data
    assert got.model_input.to_ints() == [5, 6]
    assert got.loss_fn_inputs["target_tokens"].tolist() == [6, 7]
    assert got.loss_fn_inputs["advantages"].tolist() == [0.5, -1.0]
    assert (call.loss_fn, call.config, call.forward_only) == ("ppo", {"beta": 2.0, "name": "x"}, False)


def test_numbers_of_a_config_are_read_from_older_clients_too() -> None:
    assert read(messages.ForwardBackwardRequest(loss_fn_config={"beta": 0.5}).SerializeToString()).config == {"beta": 0.5}


def test_a_config_without_a_value_is_refused() -> None:
    message = messages.ForwardBackwardRequest()
    message.loss_fn_config_v2["beta"].SetInParent()
    with pytest.raises(DataError, match=r"'beta'.* has no value"):
        read(serialized(message))


@pytest.mark.parametrize("kind", ["image", "dmel", None])
def test_chunks_that_are_no_text_are_refused(kind: str | None) -> None:
    message = messages.ForwardBackwardRequest()
    chunk = message.data.add().model_input.add()
    if kind is not None:
        getattr(chunk, kind).SetInParent()
    with pytest.raises(DataError, match=f"datum 0 has a chunk of the kind {kind}"):
        read(serialized(message))


@pytest.mark.parametrize(("tokens", "why"), [(b"abc", "multiple of the 4"), (np.asarray([-1], "<i4").tobytes(), "token -1")])
def test_bytes_that_are_no_tokens_are_refused(tokens: bytes, why: str) -> None:
    message = messages.ForwardBackwardRequest()
    message.data.add().model_input.add().encoded_text.tokens = tokens
    with pytest.raises(DataError, match=why):
        read(serialized(message))


@pytest.mark.parametrize("tokens", [[-1], [2**31], [2**70], ["a"], [None]])
def test_tokens_that_no_message_can_hold_are_not_sent(tokens: list[Any]) -> None:
    with pytest.raises(DataError, match="tokens must be numbers from 0"):
        encode_forward_call("m", 1, ForwardCall([Datum(ModelInput.from_ints(tokens), {})], "cross_entropy"))


def test_a_call_that_takes_too_much_memory_is_refused() -> None:
    body = encode_forward_call("m", 1, ForwardCall([Datum(ModelInput.from_ints(range(1000)), {})], "cross_entropy"))
    with pytest.raises(DataError, match="over 1000 bytes in memory"):
        read(body, max_bytes=1000)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_call_or_refused(body: bytes) -> None:
    with contextlib.suppress(DataError):
        read(body)


@given(st.data())
def test_a_call_of_which_bytes_were_changed_is_a_call_or_refused(draw: st.DataObject) -> None:
    datum = Datum(ModelInput.from_ints([1, 2, 3]), {"weights": TensorData([1.0, 0.0, 2.0], "float32")})
    body = bytearray(encode_forward_call("m", 1, ForwardCall([datum], "cross_entropy", {"beta": 1.0})))
    for _ in range(draw.draw(st.integers(1, 4))):
        body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        read(bytes(body))


OUTPUTS = {
    "none": ForwardBackwardOutput("ArrayRecord", [], {"loss:sum": 1.5}),
    "ragged": ForwardBackwardOutput(
        "ArrayRecord",
        [{"logprobs": TensorData([-1.0] * n, "float32"), "ids": TensorData(list(range(n)), "int64")} for n in (3, 0, 5)],
        {"loss:sum": -2.0, "entropy:mean": 0.5},
    ),
    "of different widths": ForwardBackwardOutput(
        "ArrayRecord", [{"logprobs": TensorData(np.zeros((2, k)), "float32", [2, k])} for k in (3, 3, 1, 4)], {}
    ),
    "without fields": ForwardBackwardOutput("ArrayRecord", [{}, {}], {}),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_comes_back_as_it_was_sent(name: str) -> None:
    output = OUTPUTS[name]
    back = decode_forward_output(encode_forward_output(output))
    assert back == output
    assert [{key: tensor.shape for key, tensor in row.items()} for row in back.loss_fn_outputs] == [
        {key: tensor.shape for key, tensor in row.items()} for row in output.loss_fn_outputs
    ]


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_sdk_reads_an_output_as_it_was_meant(name: str) -> None:
    output = OUTPUTS[name]
    theirs = deserialize_forward_backward_output(encode_forward_output(output))
    assert theirs.metrics == output.metrics
    assert [{key: tensor.tolist() for key, tensor in row.items()} for row in theirs.loss_fn_outputs] == [
        {key: tensor.tolist() for key, tensor in row.items()} for row in output.loss_fn_outputs
    ]


def test_an_output_whose_data_have_different_fields_is_not_sent() -> None:
    one, other = {"logprobs": TensorData([1.0], "float32")}, {"scores": TensorData([1.0], "float32")}
    with pytest.raises(DataError, match="different fields"):
        encode_forward_output(ForwardBackwardOutput("ArrayRecord", [one, other]))


def record(**field: Any) -> bytes:
    message = messages.ForwardBackwardOutput()
    made = message.loss_fn_outputs.add(num_datums=2)
    made.fields["logprobs"].CopyFrom(
        batched_tensor(**{"data": b"\0" * 16, "offsets": offsets(0, 8, 16), "dtype": messages.DTYPE_FLOAT32} | field)
    )
    return serialized(message)


def offsets(*counts: int) -> bytes:
    return np.asarray(counts, "<i8").tobytes()


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"offsets": offsets(0, 16)}, "1 of 2 datums"),
        ({"offsets": b"abc"}, "multiple of the 8"),
        ({"offsets": offsets(0, 12, 8)}, "rise from 0"),
        ({"offsets": offsets(0, 8, 24)}, "rise from 0"),
        ({"offsets": offsets(-8, 8, 16)}, "rise from 0"),
        ({"offsets": offsets(0, 6, 16)}, "multiples of the 4 bytes"),
        ({"trailing_shape": [3]}, "multiples of the 12 bytes"),
        ({"trailing_shape": [-1]}, "multiples of"),
        ({"dtype": 0}, "unknown type 0"),
    ],
)
def test_an_output_that_contradicts_itself_is_refused(field: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why):
        decode_forward_output(record(**field))


@given(st.data())
def test_an_output_of_which_bytes_were_changed_is_an_output_or_refused(draw: st.DataObject) -> None:
    body = bytearray(encode_forward_output(OUTPUTS["ragged"]))
    for _ in range(draw.draw(st.integers(1, 4))):
        body[draw.draw(st.integers(0, len(body) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(DataError):
        decode_forward_output(bytes(body))
