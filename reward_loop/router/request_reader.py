"""Reads the requests of one connection: has them parsed, and refuses what breaks a rule or a limit.

Invariants: the parser is as strict as it can be, so that no two readers understand a request in two ways; what goes to a replica
is written anew from what the parser understood, never copied; nothing is kept of a request that was refused.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from reward_loop.router.upstream import MOST_NAMES
from reward_loop.router.wire import (
    AUTHORIZATION,
    CODING,
    CONNECTION,
    EXPECT,
    REQUEST_HEADERS,
    REQUEST_ID,
    SESSION,
    ErrorType,
    first,
    without,
)

if TYPE_CHECKING:
    from reward_loop.router.server import RouterServer

HEAD_BYTES = 1 << 16
"""Size of a request's head."""

_PASSED_ON = (0, REQUEST_ID, SESSION)
"""Kinds of headers that the server gets too."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """What the head of a request means."""

    method: bytes
    target: bytes
    headers: list[bytes]
    """Flat; those that end at a hop are not in it."""
    marks: Mapping[int, bytes]
    keep: bool
    """Whether the client wants to keep the connection."""
    old: bool
    """Whether it speaks HTTP/1.0."""
    head: bytes
    """What a replica gets, up to the last header, to which X-Request-Id may be added."""
    local: bool
    """Whether no replica gets it."""
    named: bool
    """Whether it has an X-Request-Id."""
    resendable: bool
    head_only: bool


class Asker(Protocol):
    """Whose requests they are."""

    def asks(self, ask: Ask, body: list[bytes], size: int) -> None:
        """Take a whole request."""

    def is_refused(self, kind: ErrorType, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Take nothing more, and be told why."""

    def is_invited(self) -> None:
        """Be told to go on with the body."""


class RequestReader:
    """Reads for `asker`. `mid`: it is in the middle of a request; `headed`: it knows its head; `began`: since when."""

    __slots__ = (
        "_asker",
        "_body",
        "_got",
        "_head",
        "_headers",
        "_keep",
        "_marks",
        "_old",
        "_parser",
        "_plain",
        "_refused",
        "_server",
        "_size",
        "_target",
        "began",
        "mid",
    )

    def __init__(self, server: RouterServer, asker: Asker) -> None:
        self._server = server
        self._asker = asker
        self._plain = server.plain_headers
        self._parser = HttpRequestParser(self)
        self._refused = self.mid = False
        self.began = server.now
        self._renew()

    def _renew(self) -> None:
        """Be ready for the next request."""
        self._target = b""
        self._got = self._size = 0
        self._head: list[bytes] | None = None
        self._headers: list[bytes] = []
        self._marks: dict[int, bytes] | None = None
        self._body: list[bytes] = []
        self._keep = True
        self._old = False

    @property
    def headed(self) -> bool:
        """Whether the head of the request that it is in the middle of has been read."""
        return self._head is not None

    def read(self, data: bytes) -> None:
        """Read on."""
        self._got += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._misread(error)
        if self._got > HEAD_BYTES:
            self._measure()

    def left(self) -> int:
        """Return how many bytes are left of a body that is too long to be there already; 0 where that is not known."""
        if not self.mid or self._head is None or self._refused:
            return 0
        total = int(first(self._head, b"content-length") or b"0")
        if total > self._server.max_body_bytes:
            self._too_large()
            return 0
        return total - self._size

    def take_rest(self, rest: bytearray) -> None:
        """Go on after the rest of a body, which came without the parser."""
        self._body.append(cast("bytes", rest))  # what is done with it can be done with either
        self._size += len(rest)
        method = self._parser.get_method()
        self._parser = HttpRequestParser(self)  # the old one still waits for this body
        self._whole(method)

    # ---- what the parser tells it

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self.mid = True
        self.began = self._server.now

    def on_url(self, target: bytes) -> None:
        """Keep the target, which may come in pieces."""
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and mark those that matter here."""
        if name in self._plain:
            self._headers += (name, b": ", value, b"\r\n")
        else:
            self._mark(name, value)

    def on_headers_complete(self) -> None:
        """Refuse what breaks a rule, before its body is read."""
        # What comes after the body, trailers, goes nowhere: a proxy may drop them (RFC 9110, 6.5.1).
        self._head, self._headers = self._headers, []
        self._keep = self._parser.should_keep_alive()
        if self._marks is not None or not self._keep or self._server.settings.token is not None:
            self._consider()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self._refused:
            self._size += len(body)
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Have the request answered, in its turn."""
        self._whole(self._parser.get_method())

    def _whole(self, method: bytes) -> None:
        self.mid = False
        if self._size > self._server.max_body_bytes:
            self._too_large()
        if self._refused:
            return
        marks, head = self._marks or {}, self._head or []
        if CODING in marks:
            head += (b"Content-Length", b": ", b"%d" % self._size, b"\r\n")
        ask = self._server.ask(method, self._target, head, marks, self._keep, self._old)
        body, size = self._body, self._size
        self._renew()
        self._asker.asks(ask, body, size)

    # ---- parts

    def _mark(self, name: bytes, value: bytes) -> None:
        """Note a header that matters, and pass it on if it is meant for the server too."""
        kind = REQUEST_HEADERS.get(name.lower(), 0)
        if not kind and len(self._plain) < MOST_NAMES:
            self._plain.add(name)
        if kind and self._head is None:
            self._marks = self._marks or {}
            self._marks[kind] = self._marks[kind] + b"," + value if kind in self._marks else value
        if kind in _PASSED_ON or (kind == AUTHORIZATION and self._server.settings.server_token is None):
            self._headers += (name, b": ", value, b"\r\n")

    def _consider(self) -> None:
        """Look closer at a head that is not a plain one."""
        marks = self._marks or {}
        connection = marks.get(CONNECTION)
        if connection is not None or not self._keep:
            version = self._parser.get_http_version()
            self._old = version == "1.0"
            if version not in ("1.0", "1.1"):
                self._refuse("bad_request", 400, f"the router speaks HTTP/1.1 and HTTP/1.0, not HTTP/{version}")
        if connection is not None:
            self._head = without(self._head or [], connection)
            if self._parser.should_upgrade():
                self._refuse("bad_request", 400, "the router speaks HTTP/1.1 only; ask without Upgrade")
        if CODING in marks and self._old:
            self._refuse("bad_request", 400, "HTTP/1.0 has no Transfer-Encoding; say the Content-Length")
        token = self._server.settings.token
        if token is not None and not self._server.is_control(self._target) and not _shows(marks.get(AUTHORIZATION), token):
            message = "the router wants another token; show it as Authorization: Bearer"
            self._refuse("unauthorized", 401, message, {"WWW-Authenticate": "Bearer"})
        if EXPECT in marks:
            self._expected(marks[EXPECT])

    def _expected(self, what: bytes) -> None:
        """Tell a client that asks before it sends the body whether it should."""
        if what.lower() != b"100-continue":
            self._refuse("bad_request", 417, f"Expect: {what[:100]!r} is not known; only 100-continue is")
        elif int(first(self._head or [], b"content-length") or b"0") > self._server.max_body_bytes:
            self._too_large()
        elif not self._refused:
            self._asker.is_invited()

    def _measure(self) -> None:
        """Refuse what is too large, head or body; called where more than a head's size has come."""
        if self._head is None:
            too_long = self.mid and self._got > 2 * HEAD_BYTES
        else:
            too_long = self._size == 0 and sum(map(len, self._head)) + len(self._target) > HEAD_BYTES
        if too_long:
            self._refuse("too_large", 431, f"the head of the request is larger than {HEAD_BYTES} bytes")
        elif self._size > self._server.max_body_bytes or self._got > 2 * (self._server.max_body_bytes + HEAD_BYTES):
            self._too_large()

    def _too_large(self) -> None:
        limit = self._server.settings.max_body_mb
        self._refuse("too_large", 413, f"the body is larger than {limit} MiB (router.max_body_mb); send smaller batches")

    def _misread(self, error: Exception) -> None:
        if isinstance(error, HttpParserCallbackError):
            logger.error("a request could not be taken in", exc_info=error)
            self._refuse("internal", 500, "the router failed to take the request in; its log says how")
        elif isinstance(error, HttpParserUpgrade):
            self._refuse("bad_request", 400, "the router speaks HTTP/1.1 only; ask without Upgrade and CONNECT")
        else:
            self._refuse("bad_request", 400, f"this is no valid HTTP/1.1 request: {error}")

    def _refuse(self, kind: ErrorType, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        if not self._refused:
            self._refused = True
            self._body = []
            self._asker.is_refused(kind, status, message, headers)


def _shows(authorization: bytes | None, token: str) -> bool:
    return authorization is not None and hmac.compare_digest(authorization, b"Bearer " + token.encode())
