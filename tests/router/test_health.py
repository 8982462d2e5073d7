"""Health checks: who gets requests follows from what replicas answer, and what is asleep is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.router.fleet import Fleet, Replica
from reward_loop.router.health import Health, Schedule, judge
from reward_loop.router.probe import ask_health
from reward_loop.router.settings import RouterSettings
from tests.router.patience import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SETTINGS = RouterSettings(health_interval_s=0.02, health_timeout_s=0.2)


def fleet_of(*urls: str) -> Fleet:
    fleet = Fleet()
    for url in urls:
        fleet.add("rm", url)
    return fleet


class FakeHealth:
    """Answers each connection with its present `answer`; None: never. `ended` counts those that are over."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.ended = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if self.answer is None:
                await reader.read()  # until the router hangs up
            else:
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncGenerator[FakeHealth]:
    fake = FakeHealth(answer)
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as server:
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield fake


@asynccontextmanager
async def checked(fleet: Fleet, settings: RouterSettings = SETTINGS) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as tasks:
        checks = tasks.create_task(Health(fleet, settings).run())
        yield
        checks.cancel()


# ---- decisions


def test_a_new_replica_is_due_at_once_and_then_once_per_interval() -> None:
    schedule, [replica] = Schedule(0.5), list(fleet_of("127.0.0.1:1"))
    assert schedule.take_due([replica], 10.0) == [replica]
    schedule.ended(replica)
    assert schedule.take_due([replica], 10.49) == []
    assert schedule.take_due([replica], 10.5) == [replica]


def test_a_replica_is_never_checked_twice_at_a_time() -> None:
    schedule, [replica] = Schedule(0.5), list(fleet_of("127.0.0.1:1"))
    schedule.take_due([replica], 0.0)
    assert schedule.take_due([replica], 99.0) == []
    schedule.ended(replica)
    assert schedule.take_due([replica], 99.0) == [replica]


def test_what_sleeps_or_drains_is_not_checked_and_what_comes_back_is_at_once() -> None:
    fleet, schedule = fleet_of("127.0.0.1:1"), Schedule(0.5)
    fleet.sleep("127.0.0.1:1")
    assert schedule.take_due(fleet, 0.0) == []
    fleet.drain("127.0.0.1:1")
    assert schedule.take_due(fleet, 1.0) == []
    fleet.wake("127.0.0.1:1")
    assert schedule.take_due(fleet, 1.1) == list(fleet)


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from(["end", "look"])), max_size=60))
def test_checks_of_a_replica_are_at_least_an_interval_apart(steps: list[tuple[float, str]]) -> None:
    schedule, [replica] = Schedule(1.0), list(fleet_of("127.0.0.1:1"))
    now, begun = 0.0, list[float]()
    for elapsed_s, step in steps:
        now += elapsed_s
        if step == "end":
            schedule.ended(replica)
        elif schedule.take_due([replica], now):
            begun.append(now)
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(begun))


@pytest.mark.parametrize("status", [200, 204, 401, 404])
def test_a_server_that_answers_is_well_whatever_it_knows_of_health(status: int) -> None:
    assert judge(status, progressed=False, timeout_s=2.0) is None


def test_a_5xx_is_trouble_of_one_that_still_answers() -> None:
    trouble = judge(503, progressed=True, timeout_s=2.0)
    assert trouble is not None
    assert (trouble.answers, "503" in trouble.text) == (True, True)


def test_silence_is_trouble_unless_it_answered_something_else_meanwhile() -> None:
    trouble = judge(TimeoutError(), progressed=False, timeout_s=2.0)
    assert trouble is not None
    assert (trouble.answers, trouble.text) == (False, "no answer to GET /health within 2 s")
    assert judge(TimeoutError(), progressed=True, timeout_s=2.0) is None


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), httptools.HttpParserError("what?")])
def test_no_connection_and_no_http_are_trouble(error: Exception) -> None:
    trouble = judge(error, progressed=True, timeout_s=2.0)
    assert trouble is not None
    assert trouble.text in (f"does not speak HTTP: {error}", "refuses connections")


# ---- the question


async def test_the_question_names_the_host_and_shows_the_servers_token() -> None:
    async with answering(OK) as server:
        port = int(server.url.rpartition(":")[2])
        assert await ask_health("127.0.0.1", port, token="s3cret", timeout_s=5.0) == 200
    head = server.asked[0].decode().split("\r\n")
    assert head[0] == "GET /health HTTP/1.1"
    assert {f"Host: 127.0.0.1:{port}", "Authorization: Bearer s3cret"} <= set(head)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, TimeoutError),
        (b"", ConnectionError),
        (b"HTTP/1.1 2", ConnectionError),
        (b"220 smtp\r\n", httptools.HttpParserError),
    ],
)
async def test_what_is_no_reply_is_an_error(answer: bytes | None, error: type[Exception]) -> None:
    async with answering(answer) as server:
        with pytest.raises(error):
            await ask_health("127.0.0.1", int(server.url.rpartition(":")[2]), token=None, timeout_s=0.3)


async def test_interim_replies_are_waited_out() -> None:
    async with answering(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n") as server:
        assert await ask_health("127.0.0.1", int(server.url.rpartition(":")[2]), token=None, timeout_s=5.0) == 503


# ---- what the fleet makes of it


async def test_a_replica_becomes_active_with_its_first_answer() -> None:
    async with answering(None) as server:
        fleet = fleet_of(server.url)
        [replica] = fleet
        async with checked(fleet):
            await until(lambda: len(server.asked) > 0)
            assert replica.state == "starting"
            server.answer = OK
            await until(lambda: replica.state == "active")


async def test_one_that_is_down_is_ejected_before_any_client_meets_it_and_says_why() -> None:
    async with answering(OK) as server:
        pass
    fleet = fleet_of(server.url)
    [replica] = fleet
    async with checked(fleet):
        await until(lambda: replica.state == "ejected")
    assert replica.trouble == "refuses connections"


async def test_one_that_hangs_is_ejected_and_gets_a_trial_once_it_answers_again() -> None:
    async with answering(OK) as server:
        fleet = fleet_of(server.url)
        [replica] = fleet
        async with checked(fleet):
            await until(lambda: replica.state == "active")
            server.answer = None
            await until(lambda: replica.state == "ejected")
            assert "no answer to GET /health" in replica.trouble
            assert replica.ejections == 1
            server.answer = OK
            await until(lambda: replica.state == "active")
            assert replica.on_trial


@pytest.mark.parametrize("change", [Fleet.sleep, Fleet.drain, Fleet.remove])
async def test_a_check_that_ends_too_late_changes_nothing(change: Callable[[Fleet, str], Replica]) -> None:
    async with answering(None) as server:
        fleet = fleet_of(server.url)
        [replica] = fleet
        async with checked(fleet):
            await until(lambda: len(server.asked) > 0)
            expected = change(fleet, server.url).state
            await until(lambda: server.ended > 0)
            assert (replica.state, server.ended) == (expected, len(server.asked))


async def test_one_replica_that_hangs_delays_no_check_of_others() -> None:
    async with answering(None) as hung, answering(OK) as well:
        fleet = fleet_of(hung.url, well.url)
        async with checked(fleet, RouterSettings(health_interval_s=0.02, health_timeout_s=30.0)):
            await until(lambda: len(well.asked) >= 5)
            assert len(hung.asked) == 1
