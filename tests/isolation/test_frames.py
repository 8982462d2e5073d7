"""Frames come out whole, however the stream is cut; what is no frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.isolation.frames import Frames, framed


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(1, 30))
def test_payloads_come_out_whole_and_in_order(payloads: list[bytes], piece: int) -> None:
    stream = b"".join(map(framed, payloads))
    frames = Frames()
    found = [frame for start in range(0, len(stream), piece) for frame in frames.feed(stream[start : start + piece])]
    assert found == payloads


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_refused(noise: bytes) -> None:
    try:
        found = list(Frames().feed(noise))
    except DataError:
        return
    assert b"".join(map(framed, found)) == noise[: sum(len(framed(frame)) for frame in found)]


def test_an_absurd_length_is_refused_before_anything_is_waited_for() -> None:
    with pytest.raises(DataError, match="a frame of 4294967295 bytes"):
        list(Frames().feed(b"\xff" * 4))


def test_a_payload_that_is_too_large_is_refused() -> None:
    with pytest.raises(DataError, match=r"268435457 bytes are too many .*\(268435456 at most\)"):
        framed(bytes((1 << 28) + 1))
