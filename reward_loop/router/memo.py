"""What has been worked out before, so that it is not worked out again for every request: a bounded memo of pure results.

Invariant: heads of messages are remembered only with the size of body that the parser found after them, so that the same bytes
mean the same message: what is remembered was parsed, and what differs in a byte or in its size is parsed.
"""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")

HEAD_END = b"\r\n\r\n"
MESSAGE_BYTES = 1 << 14
"""Size of the messages whose heads are remembered; larger ones have better things to wait for."""
_HEAD_BYTES = 1 << 11
_MOST = 1024


class Memo(dict[Key, Result]):
    """A dict that forgets everything when it is full."""

    def keep(self, key: Key, result: Result) -> Result:
        """Remember a result, and return it."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = result
        return result


def head_of(message: bytes, body_size: int) -> bytes | None:
    """Return the head of a message that is nothing but a head and a body of this size; None if it is more, less, or long."""
    end = message.find(HEAD_END) + len(HEAD_END)
    return message[:end] if end <= _HEAD_BYTES and len(message) == end + body_size else None
