"""Serving a backend: in a context, or until the process is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator, Callable

import uvloop
from aiohttp import web

from reward_loop.errors import ConfigError
from reward_loop.limits.address import is_loopback
from reward_loop.rinker.backend import Backend
from reward_loop.rinker.server.app import build_app
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.settings import KEY_PREFIX, ServerSettings

Announce = Callable[[str], None]
"""Is told the server's base URL once it can be reached."""

_BACKLOG = 4096
_END_S = 5.0
"""Seconds that requests may take to end once the server is told to."""
_LINGER_S = 1.0
"""Seconds for which the rest of a body that was refused is read, for clients that look at an answer only when all is sent.

The end of the server waits for it, and a client that has looked sends nothing more.
"""


@contextlib.asynccontextmanager
async def serving(backend: Backend, settings: ServerSettings) -> AsyncGenerator[str]:
    """Serve `backend`, and give the base URL. On leaving, those who wait are told to come again, and what runs is cancelled.

    The backend is not closed: that is for who made it. Raises ConfigError where the address can't be listened on.
    """
    listening = _listen(settings)
    hub = Hub(backend, settings)
    started = asyncio.Event()
    # In no group: what fails in the block of the caller must leave it as it is.
    life = asyncio.create_task(hub.run(started))
    await started.wait()
    runner = web.AppRunner(
        build_app(hub),
        access_log=None,
        auto_decompress=False,  # only the hub knows how much a body may unpack to
        handle_signals=False,
        shutdown_timeout=_END_S,
        lingering_time=_LINGER_S,
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listening, backlog=_BACKLOG).start()
        yield _url(listening, settings.host)
    finally:
        hub.stop()
        await runner.cleanup()
        await life


async def serve(backend: Backend, settings: ServerSettings, announce: Announce) -> None:
    """Serve `backend` until the process gets SIGTERM or SIGINT (or this is cancelled); `announce` is told the base URL."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with serving(backend, settings) as url:
            announce(url)
            await stop.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run_server(make_backend: Callable[[], Backend], settings: ServerSettings, announce: Announce) -> None:
    """Make a backend, serve it in an event loop of its own until the process is told to end, and close it."""

    async def live() -> None:
        backend = make_backend()
        try:
            await serve(backend, settings, announce)
        finally:
            await backend.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())


def _listen(settings: ServerSettings) -> socket.socket:
    host, port = settings.host, settings.port
    if settings.api_key is None and not is_loopback(host):
        raise ConfigError(
            f"a server on {host!r} needs an api_key, for others can reach it there; it must begin with {KEY_PREFIX}"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"the server can't listen on {host} port {port}: {error}") from None


def _url(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
