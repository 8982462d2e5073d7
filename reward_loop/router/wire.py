"""What HTTP/1.1 looks like on the wire: which headers end at a hop, and the replies that the router gives itself.

Invariant: headers are kept as a flat list of (name, b": ", value, b"\\r\\n"), which is joined, never formatted, on the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Literal

ErrorType = Literal[
    "no_replica",
    "asleep",
    "unknown_model",
    "queue_full",
    "timeout",
    "too_large",
    "bad_request",
    "unauthorized",
    "upstream_failed",
    "internal",
]

CONNECTION: Final = 1
CODING: Final = 2
EXPECT: Final = 3
AUTHORIZATION: Final = 4
REQUEST_ID: Final = 5
SESSION: Final = 6
HOP: Final = 7

_HOP_BY_HOP = (b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"upgrade")
REPLY_HEADERS: Final[Mapping[bytes, int]] = {
    b"connection": CONNECTION,
    b"transfer-encoding": CODING,
    **dict.fromkeys(_HOP_BY_HOP, HOP),
}
"""Headers that need a second look; all others are passed on as they are."""
REQUEST_HEADERS: Final[Mapping[bytes, int]] = {
    **REPLY_HEADERS,
    b"expect": EXPECT,
    b"authorization": AUTHORIZATION,
    b"x-request-id": REQUEST_ID,
    b"x-session-id": SESSION,
}

STRIDE: Final = 4
"""Pieces of one header in a flat list."""


def without(headers: list[bytes], connection: bytes) -> list[bytes]:
    """Return headers less those that the value of a Connection header names."""
    named = {token.strip() for token in connection.lower().split(b",")} - {b"close", b"keep-alive"}
    if not named:
        return headers
    kept: list[bytes] = []
    for start in range(0, len(headers), STRIDE):
        if headers[start].lower() not in named:
            kept += headers[start : start + STRIDE]
    return kept


def first(headers: list[bytes], name: bytes) -> bytes | None:
    """Return the value of the first header of this (lower-case) name; None if there is none."""
    for start in range(0, len(headers), STRIDE):
        if headers[start].lower() == name:
            return headers[start + 2]
    return None


def error_body(kind: ErrorType, status: int, message: str) -> bytes:
    """Return the JSON that tells a client what the router itself has to say."""
    return json.dumps({"error": {"type": kind, "message": message, "code": status}}).encode()


def error_headers(kind: ErrorType, more: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of such a reply."""
    return {"Content-Type": "application/json", "X-Reward-Router": kind, **more}


def status_line(status: int, reason: bytes | None = None) -> bytes:
    """Return a reply's first line; `reason` as the server said it, or the usual one."""
    if reason is None:
        try:
            reason = HTTPStatus(status).phrase.encode()
        except ValueError:
            reason = b""
    return b"HTTP/1.1 %d %b\r\n" % (status, reason)


def flat(headers: Mapping[str, str]) -> list[bytes]:
    """Return headers as a flat list."""
    return [piece for name, value in headers.items() for piece in (name.encode(), b": ", value.encode("latin-1"), b"\r\n")]
