"""A replica at the router: asked while it is awake, never while it sleeps, and again once it is back - with a real router."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings
from reward_loop.serving.placed import PlacedReplica
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.serving.fake_servers import fake_command
from tests.serving.polling import until


@asynccontextmanager
async def placed_replica(tmp_path: Path, *, asleep: bool = False) -> AsyncGenerator[tuple[PlacedReplica, VLLMServer, str]]:
    """A started replica behind a router, and the router's address."""
    spec = ServerSpec("m", "m", "discriminative", log_dir=str(tmp_path), start_timeout_s=30, restart_backoff_s=0.01)
    servers: list[VLLMServer] = []

    def make(on_change: object) -> VLLMServer:
        servers.append(VLLMServer(spec, asleep=asleep, on_change=on_change, build=fake_command()))  # type: ignore[arg-type]
        return servers[0]

    # Ejection by failures is out of the way: what brings the replica back is what it tells.
    async with RouterProcess(RouterSettings(health_interval_s=0.2)) as router:
        placed = PlacedReplica(make, router, asleep=asleep)
        try:
            await placed.start()
            yield placed, servers[0], router.address
        finally:
            await servers[0].stop()


async def score(address: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(f"http://{address}/score", json={"input": "x"}) as reply:
        return reply.status


async def test_one_that_is_awake_is_asked(tmp_path: Path) -> None:
    async with placed_replica(tmp_path) as (_, _, address):
        assert await score(address) == 200


async def test_one_that_starts_asleep_is_not_asked_until_it_was_woken(tmp_path: Path) -> None:
    async with placed_replica(tmp_path, asleep=True) as (placed, server, address):
        assert (await score(address), server.state) == (503, "asleep")
        await placed.wake()
        assert (await score(address), server.state) == (200, "awake")
        await placed.sleep()
        assert (await score(address), server.state) == (503, "asleep")


async def test_one_that_crashed_awake_is_asked_again_once_it_is_back(tmp_path: Path) -> None:
    async with placed_replica(tmp_path) as (placed, server, address):
        following = asyncio.create_task(placed.follow())
        pid = server.pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: server.pid not in (0, pid) and server.state == "awake")
        assert await score(address) == 200
        following.cancel()
        await asyncio.wait([following])


async def test_one_that_crashed_asleep_is_not_asked_when_it_is_back(tmp_path: Path) -> None:
    async with placed_replica(tmp_path, asleep=True) as (placed, server, address):
        following = asyncio.create_task(placed.follow())
        pid = server.pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: server.pid not in (0, pid) and server.state == "asleep")
        assert await score(address) == 503
        await placed.wake()
        assert await score(address) == 200
        following.cancel()
        await asyncio.wait([following])
