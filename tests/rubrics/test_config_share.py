"""One configuration for several workers: who serves, who follows, and what is left when one of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from reward_loop.errors import ConfigError, RequestRejected, ServerUnavailable
from reward_loop.rubrics.audit import read_audit
from reward_loop.rubrics.config_client import AsyncRubricConfigClient
from reward_loop.rubrics.config_server import ConfigServer
from reward_loop.rubrics.config_share import ConfigShare
from reward_loop.rubrics.live_config import LiveConfig
from reward_loop.rubrics.refusal import ConfigRefused
from tests.rubrics.live import live_config, weights_of

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def version(live: LiveConfig, number: int) -> None:
    """Return once the latest version is this one."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop = live.watch(lambda: loop.call_soon_threadsafe(changed.set))
    async with asyncio.timeout(20):
        while live.latest_version != number:
            changed.clear()
            await changed.wait()
    stop()


async def test_the_first_serves_and_the_others_follow() -> None:
    port, (first, *others) = free_port(), [live_config() for _ in range(4)]
    async with AsyncExitStack() as stack:
        shares = [await stack.enter_async_context(ConfigShare(live, port=port)) for live in (first, *others)]
        assert [share.serves for share in shares] == [True, False, False, False]
        client = AsyncRubricConfigClient(shares[0].url)
        await client.update({"task": 2.0})
        await client.update({"style": 3.0}, apply="immediate")
        for live in others:
            await version(live, 3)
            assert weights_of(live.active) == {"task": 2.0, "style": 3.0, "outcome": 1.0}
            with pytest.raises(ConfigRefused, match=shares[0].url):
                live.propose({"weights": {"task": 5.0}}, now=0.0)


async def test_one_that_comes_late_begins_with_what_holds() -> None:
    port, early, late = free_port(), live_config(), live_config()
    async with ConfigShare(early, port=port):
        early.propose({"weights": {"task": 2.0}}, now=0.0)
        async with ConfigShare(late, port=port):
            assert (late.latest_version, weights_of(late.begin_episode().config)["task"]) == (2, 2.0)


async def test_when_the_server_ends_another_one_serves_with_what_held() -> None:
    port, first, second = free_port(), live_config(), live_config()
    async with AsyncExitStack() as stack:
        serving = ConfigShare(first, port=port)
        await serving.__aenter__()
        following = await stack.enter_async_context(ConfigShare(second, port=port))
        first.propose({"weights": {"task": 2.0}}, now=0.0)
        await version(second, 2)
        await serving.__aexit__()
        async with asyncio.timeout(20):
            while not following.serves:  # noqa: ASYNC110 - nobody is told who serves
                await asyncio.sleep(0.01)
        await AsyncRubricConfigClient(following.url).update({"style": 3.0})
        assert weights_of(second.pending) == {"task": 2.0, "style": 3.0, "outcome": 1.0}
        assert second.latest_version == 3
        async with ConfigShare(first, port=port):
            assert weights_of(first.pending) == weights_of(second.pending)


async def test_after_it_has_ended_a_configuration_is_its_processes_own() -> None:
    port, first, second = free_port(), live_config(), live_config()
    async with ConfigShare(first, port=port), ConfigShare(second, port=port):
        assert second.follows is not None
    second.propose({"weights": {"task": 2.0}}, now=0.0)
    assert weights_of(second.pending)["task"] == 2.0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_server_of_another_pipeline_is_refused_at_the_start() -> None:
    port = free_port()
    other = LiveConfig(live_config().active.load({"schema_version": "1.0"}))
    async with ConfigShare(other, port=port):
        with pytest.raises(ConfigRefused, match="another pipeline"):
            await ConfigShare(live_config(), port=port).__aenter__()


async def test_a_wrong_token_is_refused_at_the_start() -> None:
    port = free_port()
    async with ConfigShare(live_config(), port=port, token="one"):
        with pytest.raises(RequestRejected, match="token"):
            await ConfigShare(live_config(), port=port, token="other").__aenter__()
        async with ConfigShare(live_config(), port=port, token="one") as share:
            assert not share.serves


async def test_a_port_that_something_else_has_is_an_error_at_the_start() -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    with pytest.raises(RequestRejected, match="404"):
        await ConfigShare(live_config(), port=port).__aenter__()
    await runner.cleanup()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match="choose another host"):
        await ConfigShare(live_config(), port=port, start_s=0.1).__aenter__()
    with pytest.raises(ConfigError, match="choose another host"):
        await ConfigShare(live_config(), host="192.0.2.1", token="t", port=port, start_s=0.1).__aenter__()
    with pytest.raises(ConfigError, match="65535"):
        ConfigShare(live_config(), port=1_000_000)


async def test_an_audit_that_can_not_be_read_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="line 1"):
        await ConfigShare(live_config(), port=free_port(), audit=tmp_path / "audit.jsonl").__aenter__()


async def test_a_follower_goes_on_from_a_server_that_has_begun_anew() -> None:
    port, live = free_port(), live_config()
    first = ConfigServer(live_config(), port=port)
    await first.__aenter__()
    async with ConfigShare(live, port=port, wait_s=0.5):
        first.live.propose({"weights": {"task": 2.0}}, now=0.0)
        await version(live, 2)
        await first.__aexit__()
        try:
            async with ConfigServer(live_config(task=7.0), port=port):
                await version(live, 1)
                assert weights_of(live.pending)["task"] == 7.0
        except OSError:
            assert live.follows is None  # the follower was faster, and serves now
            assert weights_of(live.pending)["task"] == 2.0


class Peer:
    """A worker in a process of its own (see `config_peer`)."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def says(self) -> tuple[str, int, float]:
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            role, number, weight = (await self.process.stdout.readline()).split()
        return role.decode(), int(number), float(weight)

    async def until(self, number: int) -> tuple[str, int, float]:
        while (said := await self.says())[1] != number:
            pass
        return said

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def peer(port: int, audit: Path) -> AsyncGenerator[Peer]:
    arguments = ["-m", "tests.rubrics.config_peer", str(port), str(audit)]
    started = Peer(await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, env=os.environ, stdout=PIPE))
    try:
        yield started
    finally:
        await started.kill()


async def test_workers_survive_the_kill_of_the_one_that_serves_and_lose_nothing(tmp_path: Path) -> None:
    port, audit = free_port(), tmp_path / "audit.jsonl"
    client = AsyncRubricConfigClient(f"127.0.0.1:{port}")
    async with peer(port, audit) as first:
        assert await first.says() == ("serves", 1, 1.0)
        async with peer(port, audit) as second:
            assert await second.says() == ("follows", 1, 1.0)
            await client.update({"task": 2.0})
            assert await second.until(2) == ("follows", 2, 2.0)
            await first.kill()
            async with asyncio.timeout(30):
                while True:
                    try:
                        await client.update({"task": 3.0})
                        break
                    except (ServerUnavailable, RequestRejected):
                        await asyncio.sleep(0.02)
            assert await second.until(3) == ("serves", 3, 3.0)
            async with peer(port, audit) as third:
                assert await third.until(3) == ("follows", 3, 3.0)
    assert [change.version for change in read_audit(audit)] == [1, 2, 3]


async def test_what_was_answered_ok_is_there_after_a_kill_in_the_middle_of_many_updates(tmp_path: Path) -> None:
    port, audit = free_port(), tmp_path / "audit.jsonl"
    answered = dict[int, float]()

    async def write(writer: int) -> None:
        client = AsyncRubricConfigClient(f"127.0.0.1:{port}")
        weight = float(writer)
        while True:
            weight += 8.0
            try:
                answer = await client.update({"task": weight})
            except (ServerUnavailable, RequestRejected):
                return
            answered[answer["config_version"]] = weight
            if len(answered) == 40:
                first.process.send_signal(signal.SIGKILL)

    async with peer(port, audit) as first:
        await first.says()
        async with asyncio.TaskGroup() as tasks:
            for writer in range(8):
                tasks.create_task(write(writer))
    assert len(answered) >= 40
    async with peer(port, audit) as again:
        _, number, _ = await again.says()
    recorded = {change.version: change.new.weights["task"] for change in read_audit(audit)}
    assert number == max(recorded) >= max(answered)
    assert {number: recorded[number] for number in answered} == answered
