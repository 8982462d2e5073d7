"""A server's life: started, probed, put to sleep, restarted after a crash, given up, stopped - with processes without a model."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from reward_loop.errors import RewardServerError
from reward_loop.serving.replica import Replica
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from tests.processes import wait_until_gone
from tests.serving.fake_servers import fake_command
from tests.serving.polling import until


@pytest.fixture
def spec(tmp_path: Path) -> ServerSpec:
    return ServerSpec("m", "org/m", "discriminative", log_dir=str(tmp_path / "logs"), start_timeout_s=30, restart_backoff_s=0.01)


async def ask(url: str, path: str = "/health") -> dict[str, object]:
    async with aiohttp.ClientSession() as session, session.get(url + path) as reply:
        answer: dict[str, object] = await reply.json()
        return answer


async def test_it_is_ready_when_start_returns_and_gone_when_stop_does(spec: ServerSpec) -> None:
    server = VLLMServer(spec, build=fake_command())
    url = await server.start()
    pid = server.pid
    assert (server.state, await ask(url)) == ("awake", {"status": "ok", "asleep": False})
    assert server.log_path.name == "org_m-0.log"
    await server.stop()
    assert (server.state, server.pid) == ("stopped", 0)
    wait_until_gone([pid])


async def test_one_that_starts_asleep_sleeps_when_start_returns(spec: ServerSpec) -> None:
    async with VLLMServer(spec, asleep=True, build=fake_command()) as server:
        assert (server.state, (await ask(server.url))["asleep"]) == ("asleep", True)


async def test_sleep_and_wake_up_can_be_asked_for_twice(spec: ServerSpec) -> None:
    async with VLLMServer(spec, build=fake_command()) as server:
        for _ in range(2):
            await server.sleep()
            assert (server.state, (await ask(server.url))["asleep"]) == ("asleep", True)
        for _ in range(2):
            await server.wake_up()
            assert (server.state, (await ask(server.url))["asleep"]) == ("awake", False)


@pytest.mark.parametrize("asleep", [False, True])
async def test_after_a_crash_it_is_back_at_the_same_address_as_it_was(spec: ServerSpec, asleep: bool) -> None:
    states: list[str] = []

    def note(replica: Replica) -> None:
        states.append(replica.state)

    async with VLLMServer(spec, asleep=asleep, on_change=note, build=fake_command()) as server:
        url, pid = server.url, server.pid
        states.clear()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: server.pid not in (0, pid) and server.state == ("asleep" if asleep else "awake"))
        assert server.url == url
        assert (await ask(url))["asleep"] is asleep
        assert states == ["restarting", "awake", *(["asleep"] if asleep else [])]


def update_dir_of(server: VLLMServer) -> Path:
    """The directory that the server's process was given for its updates."""
    variables = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    return Path(next(each.removeprefix(b"UPDATE_DIR=").decode() for each in variables if each.startswith(b"UPDATE_DIR=")))


async def test_its_updates_outlive_crashes_and_restarts_and_end_with_it(spec: ServerSpec, tmp_path: Path) -> None:
    elsewhere = tmp_path / "large" / "disk"
    async with VLLMServer(replace(spec, update_dir=str(elsewhere)), build=fake_command()) as server:
        directory = update_dir_of(server)
        assert directory.parent == elsewhere
        (directory / "record.json").write_text("{}")
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: server.state == "restarting")
        await server.wake_up()
        await server.restart()
        assert update_dir_of(server) == directory
        assert (directory / "record.json").exists()
    assert list(elsewhere.iterdir()) == []


async def test_two_servers_keep_their_updates_apart(spec: ServerSpec, tmp_path: Path) -> None:
    shared = replace(spec, update_dir=str(tmp_path / "updates"))
    async with VLLMServer(shared, build=fake_command()) as one, VLLMServer(shared, build=fake_command()) as other:
        assert update_dir_of(one) != update_dir_of(other)


async def test_a_wake_up_that_meets_a_crash_waits_for_the_restart(spec: ServerSpec) -> None:
    async with VLLMServer(spec, asleep=True, build=fake_command()) as server:
        os.kill(server.pid, signal.SIGKILL)
        await server.wake_up()
        assert (server.state, (await ask(server.url))["asleep"]) == ("awake", False)


async def test_a_sleep_that_meets_a_crash_does_not_wait_but_holds(spec: ServerSpec) -> None:
    async with VLLMServer(spec, build=fake_command()) as server:
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: server.state == "restarting")
        await server.sleep()
        await until(lambda: server.state == "asleep")


async def test_one_that_crashes_too_often_is_given_up_and_says_so(spec: ServerSpec) -> None:
    async with VLLMServer(replace(spec, max_restarts=1), build=fake_command()) as server:
        for _ in range(2):
            await until(lambda: server.state == "awake")
            os.kill(server.pid, signal.SIGKILL)
            await until(lambda: server.state != "awake")
        await until(lambda: server.state == "failed")
        with pytest.raises(RewardServerError, match=r"org_m-0 can't be awake: it is failed\. was killed by signal 9"):
            await server.wake_up()


async def test_one_that_dies_at_the_start_is_an_error_with_its_log_and_a_remedy(spec: ServerSpec) -> None:
    server = VLLMServer(spec, build=fake_command("ill"))
    with pytest.raises(RewardServerError, match="ended with status 1 while it started; it said MemoryError: 12 GiB") as raised:
        await server.start()
    assert "this machine's memory does not suffice" in str(raised.value)
    assert str(server.log_path) in str(raised.value)
    assert server.state == "stopped"


async def test_one_that_is_not_ready_in_time_is_ended_and_says_what_was_waited_for(spec: ServerSpec) -> None:
    server = VLLMServer(replace(spec, start_timeout_s=2), build=fake_command("holds"))
    with pytest.raises(RewardServerError, match=r"not ready in 2 s \(server.start_timeout_s\)"):
        await server.start()
    assert server.pid == 0


async def test_cancelling_the_start_leaves_nothing(spec: ServerSpec) -> None:
    server = VLLMServer(spec, build=fake_command("holds"))
    starting = asyncio.create_task(server.start())
    await until(lambda: server.pid != 0)
    pid = server.pid
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    wait_until_gone([pid])


async def test_a_stop_is_quick_even_if_the_server_does_not_listen(spec: ServerSpec) -> None:
    server = VLLMServer(replace(spec, stop_timeout_s=1.0), build=fake_command("deaf"))
    await server.start()
    pid = server.pid
    began = time.monotonic()
    await server.stop()
    assert time.monotonic() - began < 10
    wait_until_gone([pid])


async def test_a_restart_keeps_the_address(spec: ServerSpec) -> None:
    async with VLLMServer(replace(spec, port=0), build=fake_command()) as server:
        pid, url = server.pid, server.url
        assert await server.restart() == url
        assert server.pid != pid


async def test_too_much_memory_is_a_crash_that_names_the_bound(spec: ServerSpec) -> None:
    bounded = replace(spec, memory_mb=300, max_restarts=0, start_timeout_s=60)
    with pytest.raises(RewardServerError, match=r"server\.memory_mb=300"):
        await serve_until_given_up(VLLMServer(bounded, build=fake_command("grows")))


async def serve_until_given_up(server: VLLMServer) -> None:
    """Raise what a server died of, at its start or once it served."""
    async with server:
        await until(lambda: server.state == "failed")
        await server.wake_up()
