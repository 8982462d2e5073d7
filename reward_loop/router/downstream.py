"""One connection of a client: has its requests answered one after the other, and writes the answers.

Invariants: answers go out in the order of the requests, and only as fast as the client takes them; a request that is refused ends
the connection after what came before it was answered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from reward_loop.router.body_reader import LARGE_BYTES, BodyReader
from reward_loop.router.memo import HEAD_END, MESSAGE_BYTES, head_of
from reward_loop.router.request_reader import Ask, RequestReader
from reward_loop.router.upstream import JOIN_BYTES, Framing, KnownReply
from reward_loop.router.wire import CODING, EXPECT, ErrorType, error_body, error_headers, flat, status_line

if TYPE_CHECKING:
    from reward_loop.router.server import RouterServer

LINGER_S = 2.0
"""Seconds that a client that was refused gets to read why, while what it still sends is thrown away."""


class Work(Protocol):
    """A request that is being answered."""

    def start(self) -> None:
        """Begin."""

    def cancel(self) -> None:
        """The client is gone."""

    def pause(self) -> None:
        """The client takes no more for now."""

    def resume(self) -> None:
        """It does again."""

    def check(self, now: float) -> None:
        """Look after the deadlines."""


class Downstream(asyncio.Protocol):
    """A client's connection to `server`."""

    __slots__ = (
        "_active",
        "_chunked",
        "_fresh",
        "_head_only",
        "_heard_at",
        "_keep",
        "_lingers_until",
        "_old",
        "_over",
        "_reader",
        "_ready",
        "_refusal",
        "_server",
        "_starting",
        "_transport",
        "reads",
    )

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self._reader = RequestReader(server, self)
        self._transport = cast("asyncio.Transport", None)
        self._active: Work | None = None
        self._ready: deque[tuple[Work, Ask]] = deque()
        self._fresh: tuple[Ask, int] | None = None
        """The last request that was parsed, with the size of its body."""
        self._refusal: tuple[ErrorType, int, str, dict[str, str] | None] | None = None
        self._over = False
        """Whether nothing more is read or answered."""
        self._lingers_until = 0.0
        self._keep = self.reads = True
        self._old = self._head_only = self._chunked = self._starting = False
        self._heard_at = server.now

    # ---- what the loop tells it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be known to the server."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is being done for a client that is gone."""
        self._server.left(self)
        self._ready.clear()
        if self._active is not None:
            work, self._active = self._active, None
            work.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on in the requests."""
        server = self._server
        self._heard_at = server.now
        if self._refusal is not None or self._over:
            return
        free = self._active is None and self.reads and not self._ready
        message = data if free and len(data) <= MESSAGE_BYTES and not self._reader.mid else None
        if message is not None:
            end = message.find(HEAD_END) + 4
            known = server.known_requests.get(message[:end])
            if known is not None and known[1] == len(message) - end:
                self._begin(server.work(self, known[0], [message[end:]], known[1]), known[0])
                return
        self._read(data)
        if message is not None:
            self._learn(message)
        self._say_no()

    def pause_writing(self) -> None:
        """Have less sent."""
        self.reads = False
        if self._active is not None:
            self._active.pause()

    def resume_writing(self) -> None:
        """Have more sent."""
        self.reads = True
        if self._active is not None:
            self._active.resume()
        elif self._ready or self._refusal is not None:
            self._next()

    def body_goes_on(self) -> None:
        """Note that a large body is coming."""
        self._heard_at = self._server.now

    def body_read(self, rest: bytearray) -> None:
        """Go on after the rest of a large body."""
        self._reads_by(self)
        self._reader.take_rest(rest)
        self._say_no()

    # ---- what the reader tells it

    def asks(self, ask: Ask, body: list[bytes], size: int) -> None:
        """Have a request answered, in its turn."""
        if self._over or self._refusal is not None:
            return
        self._fresh = ask, size
        work = self._server.work(self, ask, body, size)
        if self._active is None and self.reads and not self._ready:
            self._begin(work, ask)
        else:
            self._ready.append((work, ask))
            self._transport.pause_reading()

    def is_refused(self, kind: ErrorType, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Let the connection end with this, once what came before is answered."""
        if self._refusal is None:
            self._refusal = kind, status, message, headers

    def is_invited(self) -> None:
        """Tell the client to go on with the body, unless answers are due before that."""
        if self._active is None and not self._ready:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # ---- what the request's work tells it

    def deliver(self, first_line: bytes, headers: list[bytes], body: list[bytes]) -> None:
        """Send a whole answer, and go on with the next request."""
        connection = b"\r\n" if self._keep and not self._old else self._connection_header()
        if len(body) == 1 and len(body[0]) <= JOIN_BYTES:
            self._transport.write(b"".join((first_line, *headers, connection, body[0])))
        else:
            self._transport.writelines((b"".join((first_line, *headers, connection)), *body))
        self._answered()

    def pass_on(self, known: KnownReply, message: bytes) -> None:
        """Send a whole answer as it came, if nothing has to be added to it, and go on with the next request."""
        if self._keep and not self._old:
            self._transport.write(message)
            self._active = None
            if self._ready or self._refusal is not None:
                self._next()
        else:
            self.deliver(known.first_line, known.headers, [message[known.head_size :]])

    def refuse(self, kind: ErrorType, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Answer with an error of the router's own."""
        self._server.count(kind)
        self.answer(status, error_headers(kind, headers or {}), error_body(kind, status, message))

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer with this."""
        length = {"Content-Length": str(len(body))}
        self.deliver(status_line(status), flat({**headers, **length}), [] if self._head_only else [body])

    def interim(self, first_line: bytes, headers: list[bytes]) -> None:
        """Send a 1xx to a client that knows what it is."""
        if not self._old:
            self._transport.write(b"".join((first_line, *headers, b"\r\n")))

    def begin(self, first_line: bytes, headers: list[bytes], body: list[bytes], framing: Framing) -> None:
        """Send the beginning of an answer whose end is not known."""
        self._chunked = framing == "chunked" and not self._old
        if framing == "close" or (framing == "chunked" and self._old):
            self._keep = False
        coding = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        self._transport.write(b"".join((first_line, *headers, coding, self._connection_header())))
        for piece in body:
            self.piece(piece)

    def piece(self, body: bytes) -> None:
        """Send more of it."""
        if self._chunked:
            self._transport.writelines((b"%x\r\n" % len(body), body, b"\r\n"))
        else:
            self._transport.write(body)

    def end(self) -> None:
        """Send the end of it, and go on with the next request."""
        if self._chunked:
            self._chunked = False
            self._transport.write(b"0\r\n\r\n")
        self._answered()

    def hang_up(self) -> None:
        """End the connection with a reset: where only its end tells the end of an answer, a regular one would be a lie."""
        self._active, self._over = None, True
        if (sock := self._transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    # ---- what the server tells it

    def check(self, now: float) -> None:
        """Look after the deadlines; called every now and then."""
        settings = self._server.settings
        if self._lingers_until:
            if now > self._lingers_until:
                self._transport.abort()
        elif self._active is not None:
            self._active.check(now)
        elif self._reader.mid:
            if now - (self._heard_at if self._reader.headed else self._reader.began) > settings.head_timeout_s:
                self.is_refused("timeout", 408, f"the request was not there within {settings.head_timeout_s} s")
                self._next()
        elif now - self._heard_at > settings.idle_timeout_s:
            self._transport.close()

    def leave(self) -> None:
        """Close the connection as soon as nothing is in flight."""
        self._keep = False
        if self._active is None and not self._ready:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._transport.abort()

    # ---- parts

    def _read(self, data: bytes) -> None:
        """Have the parser read on, or step aside where much is left of a body."""
        self._fresh = None
        self._reader.read(data)
        left = self._reader.left()
        if left >= LARGE_BYTES:
            self._reads_by(BodyReader(self, left))

    def _reads_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Have this protocol read on."""
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    def _learn(self, message: bytes) -> None:
        """Remember the head of a request that was all of a message."""
        if self._fresh is None or self._reader.mid:
            return
        ask, size = self._fresh
        head = head_of(message, size)
        if head is not None and not (ask.local or CODING in ask.marks or EXPECT in ask.marks):
            self._server.known_requests.keep(head, (ask, size))

    def _connection_header(self) -> bytes:
        """Return the last line of a head, and the empty line after it."""
        if not self._keep:
            return b"Connection: close\r\n\r\n"
        return b"Connection: keep-alive\r\n\r\n" if self._old else b"\r\n"

    def _begin(self, work: Work, ask: Ask) -> None:
        self._keep = ask.keep and not self._server.draining
        self._old, self._head_only = ask.old, ask.head_only
        self._active = work
        work.start()

    def _answered(self) -> None:
        self._active = None
        if not self._keep:
            self._ready.clear()
            self._linger()
        elif not self._starting and (self._ready or self._refusal is not None):
            self._next()

    def _next(self) -> None:
        """Start the requests that are there, one after the other for as long as they are answered at once."""
        self._starting = True
        while self._ready and self._active is None and self.reads and not self._over:
            self._begin(*self._ready.popleft())
        self._starting = False
        if not self._ready:
            self._transport.resume_reading()
        self._say_no()

    def _say_no(self) -> None:
        """Answer a request that was refused, if all before it are answered; that is the end of the connection."""
        if self._refusal is not None and self._active is None and not self._ready and not self._over:
            self._keep = self._old = self._head_only = False
            self.refuse(*self._refusal)

    def _linger(self) -> None:
        """Close once the client has had a chance to read its answer: closing over unread bytes would reset it away."""
        self._over = True
        if self._reader.mid or self._refusal is not None:
            self._lingers_until = self._server.now + LINGER_S
            self._transport.resume_reading()
            self._transport.write_eof()
        else:
            self._transport.close()
