"""What makes two requests belong together: the key that `consistent_hash` looks at. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from reward_loop.router.settings import RouterSettings

Key = Callable[[Sequence[bytes], bytes], bytes]
"""(pieces of the body, value of X-Session-Id or b"") -> key. Equal bodies have equal keys however they were cut into pieces."""


def key_by(settings: RouterSettings) -> Key:
    """Return how the settings tell requests apart."""
    if settings.affinity == "prefix":
        size = settings.affinity_bytes
        return lambda body, _: _hash([_beginning(body, size)])
    if settings.affinity == "session":
        return lambda body, session: _hash([b"session", session]) if session else _hash(body)
    return lambda body, _: _hash(body)


def _hash(pieces: Sequence[bytes]) -> bytes:
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _beginning(pieces: Sequence[bytes], size: int) -> bytes:
    start = b""
    for piece in pieces:
        start += piece[: size - len(start)]
        if len(start) == size:
            break
    return start
