"""Plain data crosses the wall unchanged, everything else as an opaque number, and no bytes break the reader."""

from __future__ import annotations

import math
import socket
import struct
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.sandbox.inside.channel import MOST_BYTES, Channel, Gone
from reward_loop.sandbox.inside.codec import Malformed, decode, encode

TEXT = st.text(st.characters(codec=None, categories=None)) | st.just("\ud800\udfff")
KEYS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(KEYS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6)
PLAIN = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.sets(HASHABLE, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
    ),
    max_leaves=20,
)


def nothing_opaque(value: object) -> int:
    raise AssertionError(f"{value!r} was taken for an opaque object")


def crossed(value: object) -> Any:
    return decode(encode(value, nothing_opaque), lambda number: f"object {number}")


@given(PLAIN)
def test_plain_data_comes_back_equal_and_of_the_same_type(value: object) -> None:
    back = crossed(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, (set, frozenset, dict, list, tuple))


def test_nan_infinity_and_negative_zero_survive() -> None:
    assert math.isnan(crossed(float("nan")))
    assert crossed([float("inf"), -float("inf")]) == [math.inf, -math.inf]
    assert math.copysign(1, crossed(-0.0)) == -1


def test_other_objects_become_what_the_reader_makes_of_their_number() -> None:
    assert decode(encode([object(), print], lambda _: 7), lambda number: f"object {number}") == ["object 7", "object 7"]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    with suppress(Malformed):
        decode(data, lambda number: number)


@given(PLAIN, st.data())
def test_damaged_data_is_read_or_refused_and_nothing_else(value: object, data: st.DataObject) -> None:
    frame = bytearray(encode(value, nothing_opaque))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        decode(bytes(frame), lambda number: number)


def test_nesting_has_a_bound_on_both_sides() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        encode(endless, nothing_opaque)
    with pytest.raises(Malformed, match="nested too deeply"):
        decode((b"l" + struct.pack("<I", 1)) * 5000 + b"N", lambda number: number)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "end too early"),
        (b"Q", "no type has the tag"),
        (b"NN", "1 bytes too many"),
        (b"s\x02\x00\x00\x00\xff\xff", "can't decode"),
        (b"l\xff\xff\xff\xff", "4294967295 items or bytes are announced"),
        (b"S\x01\x00\x00\x00l\x00\x00\x00\x00", "unhashable"),
        (b"rNNN", "no integers"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(frame: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(frame, lambda number: number)


def test_a_channel_tells_silence_frames_and_the_end_apart() -> None:
    left, right = socket.socketpair()
    with left, closing(Channel(right.detach())) as channel:
        assert channel.is_silent()
        left.sendall(struct.pack("<I", 2) + b"ab")
        assert not channel.is_silent()
        assert channel.receive() == b"ab"
        assert channel.is_silent()
        left.sendall(struct.pack("<I", MOST_BYTES + 1))
        with pytest.raises(ValueError, match="the most is"):
            channel.receive()
        with pytest.raises(ValueError, match="can't leave the sandbox"):
            channel.send(bytes(MOST_BYTES + 1))
        left.sendall(b"\x01")
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(Gone):
            channel.receive()
