"""Whatever is sent to it, the server answers with a reason, and goes on."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.types import Datum, ModelInput, TensorData
from reward_loop.rinker.wire.compression import compressed
from reward_loop.rinker.wire.forward_call import ForwardCall, encode_forward_call
from reward_loop.rinker.wire.protocol import PROTOBUF
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.served import served

PATHS = [
    "/client/config",
    "/create_session",
    "/session_heartbeat",
    "/create_model",
    "/get_info",
    "/unload_model",
    "/optim_step",
    "/save_weights",
    "/save_weights_for_sampler",
    "/load_weights",
    "/create_sampling_session",
    "/join_sampling_session",
    "/close_sampling_session",
    "/asample",
    "/retrieve_future",
    "/cancel_future",
    "/weights_info",
    "/telemetry",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)
NAMES = ["session_id", "model_id", "seq_id", "model_seq_id", "path", "prompt", "sampling_params", "adam_params", "request_id"]


@pytest.fixture(scope="module")
def connection() -> Iterator[http.client.HTTPConnection]:
    with served(RecordingBackend) as url:
        made = http.client.HTTPConnection(str(urlsplit(url).hostname), urlsplit(url).port or 0, timeout=30)
        yield made
        made.close()


def post(connection: http.client.HTTPConnection, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", f"/api/v1{path}", body, {"X-API-Key": "tml-test", **named})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_any_json_is_taken_or_refused_with_a_reason(connection: http.client.HTTPConnection) -> None:
    @settings(max_examples=150)
    @given(st.sampled_from(PATHS), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5) | JSON)
    def check(path: str, body: object) -> None:
        status, said = post(connection, path, json.dumps(body).encode())
        assert status < 500
        assert status == 200 or said["detail"]

    check()


def test_any_bytes_are_taken_or_refused_with_a_reason(connection: http.client.HTTPConnection) -> None:
    @settings(max_examples=100)
    @given(
        st.sampled_from([*PATHS, "/forward_backward"]), st.binary(max_size=80), st.sampled_from(["identity", "zstd", "gzip", "ö"])
    )
    def check(path: str, body: bytes, encoding: str) -> None:
        status, said = post(connection, path, body, Content_Type=PROTOBUF, Content_Encoding=encoding)
        assert status < 500
        assert status == 200 or said["detail"]

    check()


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"session_id":' * 50_000, b'"\\ud800"', b'{"session_id": "\\ud800"}', b"\xff"]
)
@pytest.mark.parametrize("path", ["/session_heartbeat", "/asample", "/telemetry"])
def test_json_made_to_break_readers_is_refused(connection: http.client.HTTPConnection, path: str, body: bytes) -> None:
    status, _ = post(connection, path, body)
    assert status == (200 if path == "/telemetry" else 400)


def test_calls_of_which_bytes_were_changed_are_errors_of_the_user(connection: http.client.HTTPConnection) -> None:
    _, session = post(connection, "/create_session", b"{}")
    body = {"session_id": session["session_id"], "model_seq_id": 0, "base_model": "base"}
    _, promised = post(connection, "/create_model", json.dumps(body).encode())
    _, made = post(connection, "/retrieve_future", json.dumps({"request_id": promised["request_id"]}).encode())
    datum = Datum(ModelInput.from_ints([1, 2, 3]), {"weights": TensorData([1.0, 0.0, 2.0], "float32")})
    numbers = iter(range(1, 10_000))

    @settings(max_examples=100)
    @given(st.data(), st.booleans())
    def check(draw: st.DataObject, pack: bool) -> None:
        call = bytearray(encode_forward_call(made["model_id"], next(numbers), ForwardCall([datum], "ppo", {"beta": 1.0})))
        for _ in range(draw.draw(st.integers(1, 4))):
            call[draw.draw(st.integers(40, len(call) - 1))] = draw.draw(st.integers(0, 255))
        raw = compressed(bytes(call)) if pack else bytes(call)
        encoding = "zstd" if pack else "identity"
        status, said = post(connection, "/forward_backward", raw, Content_Type=PROTOBUF, Content_Encoding=encoding)
        assert status < 500
        if status == 200:
            told = said["request_id"]
            connection.request("POST", "/api/v1/retrieve_future", json.dumps({"request_id": told}), {"X-API-Key": "tml-test"})
            answer = connection.getresponse()
            result = answer.read()
            if answer.headers["Content-Type"] != PROTOBUF:
                assert json.loads(result)["category"] == "user"

    check()
