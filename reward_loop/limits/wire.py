"""What clients and the server of a shared limit say to each other: one JSON object per line, over TCP.

    client  {"name": "judge", "limits": {…}, "token": "…"}   first: which limit
            {"held": 3}                      request 3 was let through by a server that is gone; 3 is the client's own number
            {"ask": 7, "tokens": 900}        a request wants to go (null: the estimate)
            {"used": 7, "tokens": 412}       what it took
            {"throttled": 7, "after": 2.5}   it was answered 429 (null: not said for how long)
            {"leave": 7}                     it is over, or not wanted any more
    server  {"welcome": true}
            {"go": 7}
            {"refused": "why", "kind": "ConfigError"}   and hangs up

Invariant: what is not such a line is a WireError, however it is malformed; a line is at most MAX_LINE bytes long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from reward_loop.errors import RewardServerError

MAX_LINE = 65_536
MAX_TOKENS = 10**9


class WireError(RewardServerError):
    """The other side said something that is not understood."""


class Lines:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete; WireError at the first that is malformed."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            yield _decoded(line)
        if len(self._rest) > MAX_LINE:
            raise WireError(f"a line of more than {MAX_LINE} bytes, which begins with {self._rest[:40]!r}")


def encode(**message: object) -> bytes:
    """Return a message as its line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def key_of(value: object) -> int:
    """Return the number of a request; WireError if it is none."""
    if type(value) is not int:
        raise WireError(f"a request is named by a whole number, not by {value!r:.80}")
    return value


def tokens_of(value: object) -> int:
    """Return a number of tokens; WireError if it is none."""
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise WireError(f"tokens must be a whole number from 0 to {MAX_TOKENS}, not {value!r:.80}")
    return value


def seconds_of(value: object) -> float:
    """Return a number of seconds; WireError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise WireError(f"seconds must be a finite number that is not negative, not {value!r:.80}")
    return float(min(value, MAX_TOKENS))


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line) if len(line) <= MAX_LINE else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise WireError(f"each line must be a JSON object of at most {MAX_LINE} bytes; one begins with {line[:40]!r}")
    return message
