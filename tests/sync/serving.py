"""Serving what answers every request of a test, in a thread."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from aiohttp import web

from reward_loop.loop_thread import LoopThread


class Answering(Protocol):
    """A server of a test."""

    url: str

    async def answer(self, request: web.Request) -> Any: ...


@contextmanager
def served(servers: Sequence[Answering]) -> Generator[None]:
    """Serve each at a port of its own, which its `url` says."""
    loop = LoopThread("servers of a test")
    runners: list[web.AppRunner] = []

    async def start(server: Answering) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", server.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def stop() -> None:
        for runner in runners:
            await runner.cleanup()

    try:
        for server in servers:
            loop.run(start(server))
        yield
    finally:
        loop.close(stop)
