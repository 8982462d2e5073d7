"""Bodies in zstandard, in and out.

Invariant: what a body unpacks to is never larger than allowed, and never held in memory when it would be: a few bytes can stand
for terabytes.
"""

from __future__ import annotations

import io

from reward_loop.errors import ConfigError, DataError

try:
    import zstandard
except ImportError as error:
    raise ConfigError(f"bodies in zstd need zstandard ({error}): pip install 'reward-loop[tinker]'") from error

ENCODING = "zstd"
"""The content encoding."""

_STEP_BYTES = 1 << 20
# What a frame may ask its decoder to remember; those that ask for more are refused.
_WINDOW_BYTES = 1 << 27


class TooLargeError(DataError):
    """A body is larger than allowed, or would be when unpacked."""


def compressed(body: bytes) -> bytes:
    """Return a body in zstd."""
    return zstandard.ZstdCompressor().compress(body)


def decompressed(body: bytes, max_bytes: int) -> bytes:
    """Unpack a body. Raises TooLargeError where it would grow over `max_bytes`, DataError where it is not one frame of zstd."""
    decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:  # the frame does not say
            size = _counted(decoder, body, max_bytes)
        if size > max_bytes:
            raise TooLargeError(f"the body unpacks to more than the {max_bytes} bytes that are allowed; send it in several parts")
        # Where a frame lies about its size this fails: no more than `size` is ever written.
        return decoder.decompress(body, max_output_size=max(size, 1), allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DataError(f"the body of {len(body)} bytes is not one whole frame of zstd: {error}") from None


def _counted(decoder: zstandard.ZstdDecompressor, body: bytes, max_bytes: int) -> int:
    size = 0
    with decoder.stream_reader(io.BytesIO(body)) as reader:
        while size <= max_bytes and (part := reader.read(_STEP_BYTES)):
            size += len(part)
    return size
