"""The HTTP under an MCP session: aiohttp, for the client of the SDK spends twice the processor time on the same requests.

Invariant: what the SDK sees is its own client's: its requests, responses and errors.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NoReturn

import aiohttp
import httpx2
from yarl import URL

_CONNECT_S = 10.0


class _Body(httpx2.AsyncByteStream):
    """The body of a response as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            _raise(error)

    async def aclose(self) -> None:
        """Give the connection back, or close it where the body was not read to its end."""
        self._response.release()


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        content = await request.aread()
        try:
            response = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),
                data=content or None,
                headers=headers,
                allow_redirects=False,  # whether one is followed, the SDK decides
            )
        except (aiohttp.ClientError, OSError) as error:
            _raise(error)
        return httpx2.Response(response.status, headers=list(response.raw_headers), stream=_Body(response))


@asynccontextmanager
async def http_client(headers: Mapping[str, str]) -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client without limits of its own: each call brings its deadline, and the service says how many there are."""
    async with (
        aiohttp.ClientSession(
            # uvicorn hangs up after 5 idle seconds: a request that is sent at that moment would fail.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as session,
        httpx2.AsyncClient(headers=dict(headers), transport=_Transport(session), timeout=None) as client,
    ):
        yield client


def _raise(error: aiohttp.ClientError | OSError) -> NoReturn:
    kind = httpx2.ConnectError if isinstance(error, aiohttp.ClientConnectorError) else httpx2.ReadError
    raise kind(f"{type(error).__name__}: {error}") from error
