"""The lines that clients and the server of a limit exchange."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.limits.wire import MAX_LINE, MAX_TOKENS, Lines, WireError, encode, key_of, seconds_of, tokens_of


def test_messages_come_out_whole_however_they_are_cut() -> None:
    lines = Lines()
    sent = encode(ask=1, tokens=None) + encode(leave=1)
    received = [message for byte in sent for message in lines.feed(bytes([byte]))]
    assert received == [{"ask": 1, "tokens": None}, {"leave": 1}]


MALFORMED = [b"\n", b"{\n", b"[1]\n", b"7\n", b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"a":' * 5000 + b"\n", b"GET / HTTP/1.1\r\n"]


@pytest.mark.parametrize("sent", MALFORMED)
def test_what_is_no_object_is_refused(sent: bytes) -> None:
    with pytest.raises(WireError, match="each line must be a JSON object"):
        list(Lines().feed(sent))


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_refused_before_and_after_its_end(end: bytes) -> None:
    with pytest.raises(WireError, match=f"{MAX_LINE} bytes"):
        list(Lines().feed(b"x" * (MAX_LINE + 1) + end))


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_a_wire_error(sent: bytes) -> None:
    try:
        messages = list(Lines().feed(sent))
    except WireError:
        return
    assert all(isinstance(message, dict) for message in messages)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *((key_of, value) for value in (None, True, 1.0, "1", [1])),
        *((tokens_of, value) for value in (None, True, -1, 2.5, MAX_TOKENS + 1, "9")),
        *((seconds_of, value) for value in (None, True, -0.1, json.loads("1e999"), json.loads("NaN"), "9")),
    ],
)
def test_numbers_are_numbers(read: Callable[[Any], object], value: object) -> None:
    with pytest.raises(WireError, match="not"):
        read(value)
