"""One connection to a replica: sends a request, reads its reply, and says which of the ways to end it met.

Invariants: at most one exchange at a time; a reply is whole only when the parser says so; a connection that sent anything
beyond its reply is never used again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Literal, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from reward_loop.router.fleet import Replica
from reward_loop.router.memo import HEAD_END, MESSAGE_BYTES, head_of
from reward_loop.router.wire import CODING, CONNECTION, REPLY_HEADERS, first, status_line, without

if TYPE_CHECKING:
    from reward_loop.router.dispatch import Dispatcher
    from reward_loop.router.exchange import Exchange

HOLD_BYTES = 1 << 20
"""Size up to which a reply is held until it is whole."""
JOIN_BYTES = 1 << 14
"""Size up to which pieces are joined before they are written."""

MOST_NAMES = 512
"""Names of headers that are remembered as such that need no second look."""
OK = status_line(200, b"OK")

Loss = Literal["refused", "stale", "reset", "cut", "garbled", "late"]
"""How an attempt ended without a reply. Stale: the connection had been idle, and the request may never have been read."""
Framing = Literal["length", "chunked", "close"]


@dataclass(frozen=True, slots=True)
class KnownReply:
    """What the parser made of a reply with status 200 that goes to the client as it is, but for its body."""

    first_line: bytes
    headers: list[bytes]
    size: int
    """Bytes of all of it."""
    head_size: int


class Upstream(asyncio.Protocol):
    """A connection to `replica`; `exchange` is whose request it carries, if any."""

    __slots__ = (
        "_clean",
        "_connection",
        "_dispatch",
        "_excess",
        "_parser",
        "_plain",
        "_reason",
        "_transport",
        "_whole",
        "body",
        "bytes_at",
        "exchange",
        "framing",
        "headers",
        "heard",
        "keep",
        "replica",
        "sent_at",
        "served",
        "size",
        "status",
        "streaming",
    )

    def __init__(self, dispatch: Dispatcher, replica: Replica) -> None:
        self._dispatch = dispatch
        self._plain = dispatch.plain_headers
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.replica = replica
        self.exchange: Exchange | None = None
        self.served = 0
        self.keep = True
        self.sent_at = self.bytes_at = 0.0
        self._connection = b""
        self._excess = self.streaming = False
        self.forget()

    # ---- what the router does with it

    def send(self, request: list[bytes]) -> None:
        """Write a request as soon as there is a connection."""
        if self._transport is None:
            return
        if len(request) == 1:
            self._transport.write(request[0])
        else:
            self._transport.writelines(request)

    def forget(self) -> None:
        """Be ready for the next reply."""
        self.status = self.size = 0
        self.framing: Framing = "length"
        self.heard = self._whole = False
        self._clean = True
        self._reason = b""
        self.headers: list[bytes] = []
        """Flat; those that end at a hop are not in it."""
        self.body: list[bytes] = []

    def first_line(self) -> bytes:
        """Return the reply's first line."""
        return OK if self.status == 200 and self._reason == b"OK" else status_line(self.status, self._reason)

    def abort(self) -> None:
        """Hang up at once, whatever is in flight."""
        if self._transport is not None:
            self._transport.abort()

    def flow(self, *, reads: bool) -> None:
        """Read on, or read no more for now."""
        if self._transport is None or self._transport.is_closing():
            return
        if reads:
            self.bytes_at = monotonic()
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # ---- what the loop tells it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request for whose sake it was made, if anyone still wants it."""
        self._transport = cast("asyncio.Transport", transport)
        if self.exchange is None:
            self._dispatch.rest(self)
        else:
            self.send(self.exchange.request)

    def data_received(self, data: bytes) -> None:
        """Read on in the reply."""
        if self.exchange is None:  # nobody asked: a server that is about to close says 408, for example
            self.abort()
            return
        dispatch = self._dispatch
        message = None
        nbytes = len(data)
        if nbytes <= MESSAGE_BYTES and not self.heard:
            message = data
            known = dispatch.known_replies.get(message[: message.find(HEAD_END) + 4])
            if known is not None and known.size == nbytes and self.exchange.replied_as_before(self, known, message):
                return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._excess = True
            if not self._whole:
                self._lost("garbled", f"it sent what is no HTTP reply: {error}")
                return
        if self._whole:
            if message is not None:
                self._learn(message)
            self._end()
        elif self.streaming:
            self.bytes_at = monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange, if there is one, what became of its reply."""
        self._dispatch.forget(self)
        if self.exchange is None:
            return
        if exc is None and self.streaming and self.framing == "close":
            self._whole = True
            self._end()
        elif self.heard:
            self._lost("cut", f"it hung up after {self.size} bytes of its reply")
        else:
            self._lost("stale" if self.served else "reset", f"it hung up before it replied{f' ({exc})' if exc else ''}")

    def _lost(self, loss: Loss, why: str) -> None:
        if self.exchange is not None:
            self.exchange.lost(self, loss, why)
        self.abort()

    def _end(self) -> None:
        if self._excess or self.framing == "close":
            self.keep = False
        self.served += 1
        exchange = cast("Exchange", self.exchange)
        if self.streaming:
            self.streaming = False
            exchange.streamed(self)
        else:
            if self.framing == "chunked":
                self.headers += (b"Content-Length", b": ", b"%d" % self.size, b"\r\n")
            exchange.replied(self)

    # ---- what the parser tells it

    def on_message_begin(self) -> None:
        """Notice a second reply where one was asked for."""
        if self._whole:
            self._excess = True

    def on_status(self, reason: bytes) -> None:
        """Keep the reason phrase, which may come in pieces."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and mark those that matter here."""
        if name in self._plain and not self.status:
            self.headers += (name, b": ", value, b"\r\n")
        else:
            self._mark(name, value)

    def on_headers_complete(self) -> None:
        """Decide whether the reply is held until it is whole."""
        if self._whole:
            return
        self.status = status = self._parser.get_status_code()
        self.keep = self._parser.should_keep_alive()
        if not (self.keep and self._clean and status >= 200) or cast("Exchange", self.exchange).head_only:
            self._consider()

    def on_body(self, body: bytes) -> None:
        """Hold a piece of the body, or pass it on."""
        if self._whole or self.exchange is None:
            return
        self.size += len(body)
        if self.streaming:
            self.exchange.client.piece(body)
            return
        self.body.append(body)
        if self.size > HOLD_BYTES:
            self._stream()

    def on_message_complete(self) -> None:
        """Note that the reply is whole, unless it was an interim one."""
        if self.status < 200 and not self._whole:
            self._interim()
        else:
            self._whole = True

    # ---- what is known

    def _learn(self, message: bytes) -> None:
        """Remember the head of a reply that goes to the client just as it came."""
        if self.status != 200 or not (self._clean and self.keep) or self._excess or cast("Exchange", self.exchange).head_only:
            return
        head = head_of(message, self.size)
        if head is not None:
            self._dispatch.known_replies.keep(head, KnownReply(self.first_line(), self.headers, len(message), len(head)))

    # ---- what is rare

    def _mark(self, name: bytes, value: bytes) -> None:
        if self.status or self._whole:  # a trailer, which a proxy may drop (RFC 9110, 6.5.1)
            return
        kind = REPLY_HEADERS.get(name.lower())
        self._clean = self._clean and kind is None
        if kind is None:
            if len(self._plain) < MOST_NAMES:
                self._plain.add(name)
            self.headers += (name, b": ", value, b"\r\n")
        elif kind == CODING:
            self.framing = "chunked"
        elif kind == CONNECTION:
            self._connection += b"," + value

    def _consider(self) -> None:
        """Look closer at the head of a reply that is not a final one with a length on a connection that goes on."""
        if self._connection:
            self.headers, self._connection = without(self.headers, self._connection), b""
        if self.status < 200:
            return
        if cast("Exchange", self.exchange).head_only:
            # The parser waits for the body that the headers tell of: this connection has had its day.
            self._whole = self._excess = True
            self.framing = "length"
            return
        if self.framing == "length" and self.status not in (204, 304) and first(self.headers, b"content-length") is None:
            self.framing = "close"
        if self.framing == "close" or (
            self.framing == "chunked"
            and not (first(self.headers, b"content-type") or b"").lower().startswith(b"application/json")
        ):
            self._stream()

    def _stream(self) -> None:
        self.streaming = True
        self.bytes_at = monotonic()
        cast("Exchange", self.exchange).streams(self)
        self.headers, self.body = [], []

    def _interim(self) -> None:
        if self.exchange is not None and self.status not in (100, 101):
            self.exchange.client.interim(self.first_line(), self.headers)
        self.forget()
        self.heard = True
        self._clean = False
