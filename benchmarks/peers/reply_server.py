"""A server of fixed replies, as cheap as Python allows: what a router is measured in front of.

python benchmarks/peers/reply_server.py [--slots N] [--slowness F]

Prints its port. Without slots it answers every POST at once with 1 KB in the form of a chat completion. With slots it takes N
requests at a time and holds each for the `service_ms=…` that its body names, times F: the work is in the request, so that every
router gets the same. `GET /count` tells how many POSTs it has answered; any other GET is a health check.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import deque
from typing import cast

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SERVICE = re.compile(rb"service_ms=([\d.]+)")


def _reply(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


_MESSAGE = {"role": "assistant", "content": "reward " * 110}
_COMPLETION = _reply(
    {
        "id": "reply",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


class Served:
    """What the connections of this server share: the count, the free slots, and who waits for one."""

    def __init__(self, slots: int | None, slowness: float) -> None:
        self.answered = 0
        self._free = slots
        self._slowness = slowness
        self._waiting: deque[tuple[asyncio.Transport, float]] = deque()

    def answer(self, transport: asyncio.Transport, body: bytes) -> None:
        """Answer now, or when the request has had a slot for its time."""
        found = _SERVICE.search(body) if self._free is not None else None
        if found is None:
            self.answered += 1
            transport.write(_COMPLETION)
            return
        self._waiting.append((transport, float(found[1]) / 1e3 * self._slowness))
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            transport, seconds = self._waiting.popleft()
            self._free -= 1
            asyncio.get_running_loop().call_later(seconds, self._end, transport)

    def _end(self, transport: asyncio.Transport) -> None:
        self._free = (self._free or 0) + 1
        self.answered += 1
        if not transport.is_closing():
            transport.write(_COMPLETION)
        self._begin()


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests come with a Content-Length, as routers send them."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to answer on."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        if self._received:
            self._received += data
            data = bytes(self._received)
            self._received.clear()
        while data:
            head = data.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(data, 0, head)
            end = head + (int(length[1]) if length else 0)
            if head < 4 or len(data) < end:
                self._received += data
                return
            self._answer(data[:head], data[head:end])
            data = data[end:]

    def _answer(self, head: bytes, body: bytes) -> None:
        if self._transport is None:
            raise RuntimeError("data came before the connection was made")
        if head.startswith(b"POST"):
            self._served.answer(self._transport, body)
        elif head.startswith(b"GET /count "):
            self._transport.write(_reply(self._served.answered))
        else:
            self._transport.write(_reply({"status": "ok"}))


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--slowness", type=float, default=1.0)
    arguments = parser.parse_args()
    served = Served(arguments.slots, arguments.slowness)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(served), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
