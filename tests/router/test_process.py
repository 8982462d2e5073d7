"""The router's process: it is there until it is stopped, comes back when it dies, and never outlives its owner."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from reward_loop.errors import RouterError
from reward_loop.loop_thread import LoopThread
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings
from reward_loop.router.startup import read_startup, write_startup
from tests.processes import ROOT, wait_until_gone
from tests.router import patience
from tests.router.scorers import Scorer, score_of

SETTINGS = RouterSettings(health_interval_s=0.1, drain_timeout_s=5.0)
COMMAND = [sys.executable, "-m", "reward_loop.router"]


@pytest.fixture
def scorer() -> Iterator[Scorer]:
    with Scorer() as scorer:
        yield scorer


@pytest.fixture
def slow_scorer() -> Iterator[Scorer]:
    with Scorer(delay_s=0.5) as scorer:
        yield scorer


@asynccontextmanager
async def client() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30.0), connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def score(session: aiohttp.ClientSession, address: str, text: str) -> float:
    async with session.post(f"http://{address}/score", json={"input": text}, raise_for_status=True) as reply:
        return float((await reply.json())["data"][0]["score"])


async def until(router: RouterProcess, url: str, **expected: object) -> None:
    """Wait until the router says this of a replica."""

    async def says_so() -> bool:
        [seen] = [one for one in (await router.snapshot())["replicas"] if one["url"] == url]
        return all(seen[name] == value for name, value in expected.items())

    await patience.until(says_so)


def pid_of(router: RouterProcess) -> int:
    assert router.pid is not None
    return router.pid


# ---- start and stop


async def test_it_starts_serves_and_stops(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        host, _, port = router.address.rpartition(":")
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        await router.add("rm", scorer.url)
        assert await score(session, router.address, "hello") == score_of("hello")
        pid = pid_of(router)
    wait_until_gone([pid])
    assert router.pid is None


async def test_an_ipv6_address_stands_in_brackets() -> None:
    async with RouterProcess(RouterSettings(host="::1")) as router, client() as session:
        assert router.address.startswith("[::1]:")
        async with session.get(f"http://{router.address}/metrics") as reply:
            assert reply.status == 200


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RouterError, match=rf"127\.0\.0\.1 port {port}.*in use"):
            await RouterProcess(RouterSettings(port=port)).start()


async def test_a_router_that_is_not_ready_in_time_is_an_error() -> None:
    with pytest.raises(RouterError, match=r"not ready within 0\.001 s"):
        await RouterProcess(SETTINGS, start_timeout_s=0.001).start()


async def test_one_that_was_not_started_or_was_stopped_says_so() -> None:
    router = RouterProcess(SETTINGS)
    with pytest.raises(RouterError, match="not running"):
        _ = router.address
    async with router:
        with pytest.raises(RouterError, match="started already"):
            await router.start()
    with pytest.raises(RouterError, match="not running"):
        await router.snapshot()
    await router.stop()


def test_it_runs_in_a_loop_of_another_thread_too(scorer: Scorer) -> None:
    async def use() -> int:
        async with RouterProcess(SETTINGS) as router:
            await router.add("rm", scorer.url)
            return len((await router.snapshot())["replicas"])

    async def nothing() -> None:
        return

    thread = LoopThread("test-router")
    try:
        assert thread.run(use()) == 1
    finally:
        thread.close(nothing)


# ---- what it is told


async def test_replicas_are_added_drained_woken_and_removed(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router:
        await router.add("rm", scorer.url)
        await until(router, scorer.url, state="active")
        for order, state in ((router.drain, "draining"), (router.sleep, "asleep"), (router.wake, "active")):
            await order(scorer.url)
            await until(router, scorer.url, state=state)
        await router.remove(scorer.url)
        assert (await router.snapshot())["replicas"] == []


async def test_what_is_asleep_says_so_and_is_asked_nothing(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        await router.add("rm", scorer.url)
        await router.sleep(scorer.url)
        async with session.post(f"http://{router.address}/score", json={"input": "x"}) as reply:
            assert (reply.status, reply.headers["X-Reward-Router"]) == (503, "asleep")
        await router.wake(scorer.url)
        assert await score(session, router.address, "x") == score_of("x")


async def test_requests_wait_for_what_is_waking_and_are_refused_when_it_stays_asleep(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        await router.add("rm", scorer.url)
        for end in (router.wake, router.sleep):
            await router.sleep(scorer.url)
            await router.waking(scorer.url)
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(session.post(f"http://{router.address}/score", json={"input": "x"}))
                while not (await router.snapshot())["waiting"].get("rm"):  # noqa: ASYNC110 - only the router knows
                    await asyncio.sleep(0.01)
                assert not asked.done()
                await end(scorer.url)
            assert asked.result().status == (200 if end == router.wake else 503)
            asked.result().close()


async def test_a_drain_waits_for_what_is_in_flight(slow_scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        await router.add("rm", slow_scorer.url)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(score(session, router.address, "x"))
            await until(router, slow_scorer.url, in_flight=1)
            with pytest.raises(RouterError, match=r"1 requests in flight after 0\.01 s"):
                await router.drain(slow_scorer.url, timeout_s=0.01)
            await router.drain(slow_scorer.url)
            [seen] = (await router.snapshot())["replicas"]
            assert (seen["state"], seen["in_flight"]) == ("draining", 0)
        assert asked.result() == score_of("x")


@pytest.mark.parametrize(
    ("url", "said"),
    [("http://127.0.0.1:1", r"no replica is at 'http://127\.0\.0\.1:1'; there are \["), ("ftp://x", "http://host:port")],
)
async def test_what_it_can_not_do_is_a_router_error(url: str, said: str) -> None:
    async with RouterProcess(SETTINGS) as router:
        for order in (router.drain, router.sleep, router.wake, router.remove):
            with pytest.raises(RouterError, match=said):
                await order(url)


async def test_a_url_can_be_added_once() -> None:
    async with RouterProcess(SETTINGS) as router:
        await router.add("rm", "127.0.0.1:1")
        with pytest.raises(RouterError, match="already; remove it first"):
            await router.add("rm", "http://127.0.0.1:1/")


# ---- its death


async def test_when_it_is_killed_another_one_takes_its_place_with_the_same_replicas(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router:
        address, pid = router.address, pid_of(router)
        await router.add("rm", scorer.url)
        for port, order in ((1, router.drain), (2, router.sleep), (3, router.wake)):
            await router.add("rm", f"http://127.0.0.1:{port}")
            await order(f"http://127.0.0.1:{port}")
        os.kill(pid, signal.SIGKILL)
        await router.add("other", "http://127.0.0.1:4")  # by the next one
        assert router.address == address
        assert pid_of(router) != pid
        await until(router, scorer.url, state="active")
        seen = {(one["model"], one["url"].rpartition(":")[2], one["state"]) for one in (await router.snapshot())["replicas"]}
        assert {("rm", "1", "draining"), ("rm", "2", "asleep")} <= seen
        assert len(seen) == 5


async def test_clients_that_try_again_do_not_notice_its_death(scorer: Scorer) -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        await router.add("rm", scorer.url)
        await until(router, scorer.url, state="active")
        address, wrong = router.address, list[str]()
        half_done = asyncio.Event()

        async def work(name: int) -> None:
            for turn in range(100):
                text = f"{name}-{turn}"
                while True:
                    try:
                        assert await score(session, address, text) == score_of(text)
                        break
                    except aiohttp.ClientConnectionError:
                        await asyncio.sleep(0.02)
                    except aiohttp.ClientError as error:
                        wrong.append(f"{text}: {error!r}")
                        break
                if turn == 50:
                    half_done.set()

        async with asyncio.timeout(60.0), asyncio.TaskGroup() as tasks:
            for name in range(8):
                tasks.create_task(work(name))
            await half_done.wait()
            os.kill(pid_of(router), signal.SIGKILL)
        assert wrong == [], "only connections may fail"


async def test_a_router_that_can_not_come_back_is_given_up_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    router = RouterProcess(SETTINGS, max_crashes=3)
    await router.start()
    host, _, port = router.address.rpartition(":")
    pid = pid_of(router)
    os.kill(pid, signal.SIGSTOP)  # so that it does not accept a connection of the next line's socket
    os.kill(pid, signal.SIGKILL)
    wait_until_gone([pid])
    with socket.create_server((host, int(port))), caplog.at_level(logging.CRITICAL):
        with pytest.raises(RouterError, match=r"given up after 3 crashes in a row: .*in use"):
            async with asyncio.timeout(60.0):
                await router.wait()
        with pytest.raises(RouterError, match="given up"):
            await router.snapshot()
    await router.stop()


async def test_sigterm_lets_what_is_in_flight_end(slow_scorer: Scorer) -> None:
    router = RouterProcess(SETTINGS)
    await router.start()
    async with client() as session:
        await router.add("rm", slow_scorer.url)
        await until(router, slow_scorer.url, state="active")
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(score(session, router.address, str(index))) for index in range(24)]
            await until(router, slow_scorer.url, in_flight=24)
            pid = pid_of(router)
            await router.stop()
        assert [task.result() for task in asked] == [score_of(str(index)) for index in range(24)]
    wait_until_gone([pid])


async def test_a_stop_is_not_held_up_for_longer_than_it_may(scorer: Scorer) -> None:
    router = RouterProcess(SETTINGS)
    await router.start()
    await router.add("rm", scorer.url)
    await until(router, scorer.url, state="active")
    scorer.pause()
    async with client() as session:

        async def ask() -> None:
            with pytest.raises(aiohttp.ClientConnectionError):
                await score(session, router.address, "x")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask())
            await until(router, scorer.url, in_flight=1)
            pid = pid_of(router)
            async with asyncio.timeout(10.0):
                await router.stop(timeout_s=0.2)
    wait_until_gone([pid])


OWNER = """
import asyncio, sys
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings

async def main():
    async with RouterProcess(RouterSettings()) as router:
        print(router.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_owner_however_that_ends(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(number)
    wait_until_gone([pid])


def test_it_notices_the_death_of_its_owner_also_when_another_process_holds_its_standard_input() -> None:
    reading, writing = os.pipe()
    owner = ["sh", "-c", f"exec 3<&0; {' '.join(COMMAND)} <&3 & echo $!; wait"]
    with subprocess.Popen(owner, cwd=ROOT, stdin=reading, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.write(writing, write_startup(SETTINGS, []))
        pid = int(process.stdout.readline())
        assert json.loads(process.stdout.readline())["pid"] == pid
        process.kill()
        wait_until_gone([pid])
    os.close(writing)
    os.close(reading)


# ---- what goes to and fro at the start


def test_the_startup_line_holds_settings_and_replicas_with_their_states() -> None:
    _, fleet = read_startup(SETTINGS.to_json().encode())
    assert list(fleet) == []
    for port, change in ((1, fleet.wake), (2, fleet.drain), (3, fleet.sleep)):
        fleet.add("rm", f"127.0.0.1:{port}")
        change(f"127.0.0.1:{port}")
    line = write_startup(SETTINGS, fleet)
    assert line.count(b"\n") == 1
    settings, again = read_startup(line)
    assert settings == SETTINGS
    assert [(replica.model, replica.port, replica.state) for replica in again] == [
        ("rm", 1, "starting"),
        ("rm", 2, "draining"),
        ("rm", 3, "asleep"),
    ]


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"polcy": "x"}', b'{"replicas": [{"model": "rm"}]}', b'{"replicas": 3}', b"\xff"]
)
def test_any_other_line_is_an_error_with_what_was_there(line: bytes) -> None:
    with pytest.raises(RouterError, match="settings"):
        read_startup(line)


@pytest.mark.parametrize("line", [b"{}x\n", b'{"port": 1, "nonsense": 2}\n', b""])
def test_a_process_that_is_started_wrongly_ends_with_one_line_that_says_so(line: bytes) -> None:
    ended = subprocess.run(COMMAND, input=line, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (1, b"", 1)
    assert "settings" in json.loads(ended.stderr)["message"]


async def test_its_log_comes_out_of_the_owners_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reward_loop"):
        async with RouterProcess(SETTINGS) as router:
            await router.add("rm", "http://127.0.0.1:1")
            await until(router, "http://127.0.0.1:1", state="ejected")
    events = [(record.name, record.levelname) for record in caplog.records if "replica=http://127.0.0.1:1" in record.getMessage()]
    assert events == [("reward_loop.router.control", "INFO"), ("reward_loop.router.health", "WARNING")]


def test_the_process_loads_nothing_heavy() -> None:
    program = "import sys; import reward_loop.router.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & {"aiohttp", "pydantic", "omegaconf", "torch", "numpy", "ray", "vllm", "transformers", "tensordict"} == set()


async def test_it_is_small() -> None:
    async with RouterProcess(SETTINGS) as router, client() as session:
        async with session.get(f"http://{router.address}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        [resident] = [line.split()[1] for line in lines if line.startswith("process_resident_memory_bytes ")]
        assert float(resident) < 48 << 20, "before any other connection"
