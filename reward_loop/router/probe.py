"""One question to a replica, GET /health, on a connection of its own.

Invariant: a connection of its own tells whether the replica accepts new ones, and leaves none behind.
"""

from __future__ import annotations

import asyncio

import httptools


async def ask_health(host: str, port: int, *, token: str | None, timeout_s: float) -> int:
    """Return the status of the reply.

    Raises TimeoutError when no head of a reply came within `timeout_s` seconds, connecting included; OSError or
    httptools.HttpParserError when there is no HTTP service.
    """
    async with asyncio.timeout(timeout_s):
        transport, probe = await asyncio.get_running_loop().create_connection(Probe, host, port)
        try:
            transport.write(_request(host, port, token))
            return await probe.status
        finally:
            transport.abort()


def _request(host: str, port: int, token: str | None) -> bytes:
    name = f"[{host}]" if ":" in host else host
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET /health HTTP/1.1\r\nHost: {name}:{port}\r\n{authorization}Connection: close\r\n\r\n".encode()


class Probe(asyncio.Protocol):
    """Waits for the head of the reply; what follows does not matter."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self.status.done():
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.status.done():
                self.status.set_exception(error)

    def on_headers_complete(self) -> None:
        """Take the status of the reply."""
        status = self._parser.get_status_code()
        if status >= 200 and not self.status.done():
            self.status.set_result(status)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that no reply came, if somebody still waits for one."""
        if not self.status.done():
            self.status.set_exception(exc or ConnectionResetError("closed without a reply"))
