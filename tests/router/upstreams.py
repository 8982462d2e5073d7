"""Servers on loopback that behave as a test tells them to, and a router in front of them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from reward_loop.router.server import Control, RouterServer
from reward_loop.router.settings import RouterSettings

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a server got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


Behaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a request; False: this connection is over."""


def reply(body: bytes, status: int = 200, headers: str = "", reason: str = "OK") -> bytes:
    """A whole reply, framed by its length."""
    return f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def says(raw: bytes, *, keep: bool = True) -> Behaviour:
    """Answer with these bytes."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return keep

    return behave


def answers(body: str = "ok", status: int = 200, headers: str = "") -> Behaviour:
    return says(reply(body.encode(), status, headers))


def resets() -> Behaviour:
    """Reset the connection before a byte of a reply."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.transport.abort()
        return False

    return behave


async def hangs(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """Say nothing until the router hangs up."""
    await writer.wait_closed()
    return False


async def echoes(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    writer.write(reply(asked.body))
    await writer.drain()
    return True


class FakeServer:
    """Keeps what it was asked; `behave` may be changed at any time."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.asked: list[Asked] = []
        self.was_asked = asyncio.Event()
        self.lost = 0
        """Connections that ended while a request was being answered."""
        self.lost_one = asyncio.Event()
        self.connections = 0
        self.port = 0
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            await closed(writer)
            del self._serving[task]

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
        asked = Asked(method, target, headers, b"")
        body = await reader.readexactly(int(asked.header("content-length") or 0))
        asked = Asked(method, target, headers, body)
        self.asked.append(asked)
        self.was_asked.set()
        answering = asyncio.ensure_future(self.behave(asked, writer))
        ending = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.lost += 1
                self.lost_one.set()
                return False
            return await answering
        finally:
            answering.cancel()
            ending.cancel()
            await asyncio.wait({answering, ending})

    async def close(self) -> None:
        """Hang up on everyone."""
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(tuple(self._serving))


@asynccontextmanager
async def server(behave: Behaviour | None = None, port: int = 0) -> AsyncGenerator[FakeServer]:
    fake = FakeServer(behave or answers())
    listening = await asyncio.start_server(fake.serve, "127.0.0.1", port)
    fake.port = listening.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        listening.close()
        await fake.close()


async def closed(writer: asyncio.StreamWriter) -> None:
    """End a connection, whatever state it is in."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class Router:
    """A router that runs, and a client of it."""

    def __init__(self, router: RouterServer, host: str, port: int, session: aiohttp.ClientSession) -> None:
        self.server = router
        self.fleet = router.fleet
        self.host, self.port = host, port
        self.session = session
        self.base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def add(self, *servers: FakeServer | str, model: str = "rm") -> None:
        """Add replicas, and say that they are healthy."""
        for one in servers:
            url = one if isinstance(one, str) else one.url
            self.fleet.add(model, url)
            self.fleet.probed(url)

    async def ask(
        self, body: bytes | str | None = b"{}", path: str = "/score", method: str = "POST", **more: Any
    ) -> tuple[int, bytes]:
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) > 1 << 20 else body
        async with self.session.request(method, self.base + path, data=data, **more) as answer:
            return answer.status, await answer.read()

    async def raw(self, request: bytes) -> bytes:
        """Send bytes, and return all that comes until the router hangs up."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(request)
                return await reader.read()
        finally:
            await closed(writer)


@asynccontextmanager
async def router(*servers: FakeServer | str, control: Control | None = None, **settings: Any) -> AsyncGenerator[Router]:
    serving = RouterServer(RouterSettings(**settings), control)
    host, port = await serving.start()
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S)) as session:
            running = Router(serving, host, port, session)
            running.add(*servers)
            yield running
    finally:
        await serving.drain_and_close(1.0)
