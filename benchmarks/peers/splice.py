"""The floor: every connection is joined to the next server in turn, and bytes go across unread.

python benchmarks/peers/splice.py PORT URL…
"""

from __future__ import annotations

import argparse
import asyncio
from itertools import cycle
from typing import cast
from urllib.parse import urlsplit

import uvloop


class End(asyncio.Protocol):
    """One end of a pair: what arrives here leaves at the other."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport that the other end writes to."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass it on, or keep it until the other end is there."""
        if self.other is None:
            self.early += data
        else:
            self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other end, too."""
        if self.other is not None:
            self.other.close()


class Client(End):
    """The client's end, which asks for the other."""

    def __init__(self, opened: asyncio.Queue[Client]) -> None:
        super().__init__()
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a server."""
        super().connection_made(transport)
        self._opened.put_nowait(self)


async def main() -> None:
    """Join until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("urls", nargs="+")
    arguments = parser.parse_args()
    opened: asyncio.Queue[Client] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Client(opened), "127.0.0.1", arguments.port, backlog=4096)
    for url in cycle(map(urlsplit, arguments.urls)):
        client = await opened.get()
        server, end = await loop.create_connection(End, str(url.hostname), url.port or 80)
        client.other, end.other = server, client.transport
        if client.early:
            server.write(client.early)


if __name__ == "__main__":
    uvloop.run(main())
