"""A server for tests: in a thread of this process, with a loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Generator

from reward_loop.loop_thread import LoopThread
from reward_loop.rinker.backend import Backend
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings


@contextlib.contextmanager
def served(make_backend: Callable[[], Backend], settings: ServerSettings | None = None) -> Generator[str]:
    """Serve a backend on a port that is free, and give the base URL; the backend is closed with it."""
    url: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = asyncio.Event()
    chosen = (settings or ServerSettings()).model_copy(update={"port": 0})

    async def live() -> None:
        backend = make_backend()
        try:
            async with serving(backend, chosen) as address:
                url.set_result(address)
                await stop.wait()
        finally:
            await backend.close()

    async def end() -> None:
        stop.set()

    thread = LoopThread("rinker-server")
    life = thread.submit(live())
    try:
        life.add_done_callback(lambda _: url.cancel())  # where it could not start
        yield url.result(timeout=30)
    finally:
        thread.run(end())
        life.result(timeout=30)
        thread.close(_nothing)


async def _nothing() -> None:
    pass
