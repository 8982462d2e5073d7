"""Bodies in zstd: whole, broken, and far too large when unpacked."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.wire.compression import TooLargeError, compressed, decompressed  # noqa: E402


def streamed(body: bytes) -> bytes:
    """A frame that does not say how large its content is."""
    packer = zstandard.ZstdCompressor().compressobj()
    return bytes(packer.compress(body) + packer.flush())


PACKERS = pytest.mark.parametrize("pack", [compressed, streamed])


@PACKERS
@pytest.mark.parametrize("body", [b"", b"a", b"abc" * 10_000])
def test_a_body_comes_back(pack: type[bytes], body: bytes) -> None:
    assert decompressed(pack(body), 1 << 20) == body


@PACKERS
def test_a_body_of_just_what_is_allowed_comes_back(pack: type[bytes]) -> None:
    body = b"x" * 5000
    assert decompressed(pack(body), 5000) == body
    with pytest.raises(TooLargeError, match="more than the 4999 bytes"):
        decompressed(pack(body), 4999)


@PACKERS
def test_a_bomb_is_refused_and_takes_no_memory(pack: type[bytes]) -> None:
    bomb = pack(b"\0" * (1 << 27))
    assert len(bomb) < 10_000
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        decompressed(bomb, 1 << 16)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@PACKERS
def test_a_body_that_is_cut_off_is_refused(pack: type[bytes]) -> None:
    whole = pack(bytes(range(256)) * 40)
    for size in (1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(DataError, match="one whole frame"):
            decompressed(whole[:size], 1 << 20)


@PACKERS
def test_what_follows_a_body_is_refused(pack: type[bytes]) -> None:
    with pytest.raises(DataError, match="one whole frame"):
        decompressed(pack(b"abc") + b"more", 1 << 20)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_body_or_refused(body: bytes) -> None:
    with contextlib.suppress(DataError):
        decompressed(body, 1 << 10)
