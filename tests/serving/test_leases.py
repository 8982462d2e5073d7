"""Leases: who holds one finds the servers awake; the last one to leave lets them sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RewardServerError
from reward_loop.serving.leases import Lease, LeaseCount, Leases


class Servers:
    """Servers that note what they are told, and do it when `may` is set."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may = asyncio.Event()
        self.may.set()
        self.failures = 0

    async def wake(self) -> None:
        await self._do("wake")

    async def sleep(self) -> None:
        await self._do("sleep")

    async def _do(self, what: str) -> None:
        self.told.append(what)
        await self.may.wait()
        if self.failures:
            self.failures -= 1
            raise RewardServerError(f"can't {what}")


def leases_of(servers: Servers, *, awake: bool = False) -> Leases:
    return Leases(servers.wake, servers.sleep, awake=awake)


@asynccontextmanager
async def held(leases: Leases, *, ahead: bool = False) -> AsyncGenerator[None]:
    """A lease of these, as a manager holds it."""
    lease = Lease(leases)
    try:
        await lease.take(ahead=ahead)
        yield
    finally:
        await lease.give_back()


def state_of(leases: Leases) -> str:
    return leases.state


async def test_the_first_lease_wakes_and_the_last_one_puts_to_sleep() -> None:
    servers = Servers()
    leases = leases_of(servers)
    async with held(leases):
        async with held(leases):
            assert state_of(leases) == "awake"
        assert state_of(leases) == "awake"
    assert state_of(leases) == "asleep"
    assert servers.told == ["wake", "sleep"]


async def test_leases_that_come_together_wait_for_one_wake() -> None:
    servers = Servers()
    servers.may.clear()
    leases = leases_of(servers)
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(leases.acquire()) for _ in range(10)]
        await asyncio.sleep(0)
        assert state_of(leases) == "waking"
        assert not any(task.done() for task in waiting)
        servers.may.set()
    assert servers.told == ["wake"]
    assert leases.held == 10


async def test_a_wake_that_fails_is_reported_to_all_who_wait_and_can_be_tried_again() -> None:
    servers = Servers()
    servers.may.clear()
    servers.failures = 1
    leases = leases_of(servers)
    waiting = [asyncio.create_task(leases.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    servers.may.set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in errors] == ["can't wake"] * 3
    assert (leases.held, leases.state) == (0, "asleep")
    async with held(leases):
        assert servers.told == ["wake", "wake"]  # not once for each who waited


async def test_who_is_cancelled_while_waiting_holds_no_lease_and_the_wake_goes_on() -> None:
    servers = Servers()
    servers.may.clear()
    leases = leases_of(servers)
    first, second = (asyncio.create_task(leases.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    servers.may.set()
    await second
    assert (servers.told, leases.held, leases.state) == (["wake"], 1, "awake")


async def test_when_all_who_waited_are_gone_the_servers_sleep_again() -> None:
    servers = Servers()
    servers.may.clear()
    leases = leases_of(servers)
    waiting = asyncio.create_task(leases.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    servers.may.set()
    await leases.settle()
    assert (servers.told, leases.state) == (["wake", "sleep"], "asleep")


async def test_a_lease_taken_while_they_fall_asleep_waits_and_wakes_them_again() -> None:
    servers = Servers()
    leases = leases_of(servers)
    await leases.acquire()
    servers.may.clear()
    leaving = asyncio.create_task(leases.release())
    await asyncio.sleep(0)
    assert state_of(leases) == "sleeping"
    coming = asyncio.create_task(leases.acquire())
    await asyncio.sleep(0)
    servers.may.set()
    await asyncio.gather(leaving, coming)
    assert (servers.told, leases.state, leases.held) == (["wake", "sleep", "wake"], "awake", 1)


async def test_a_sleep_that_fails_is_raised_and_the_next_lease_wakes_them_all_the_same() -> None:
    servers = Servers()
    leases = leases_of(servers)
    await leases.acquire()
    servers.failures = 1
    with pytest.raises(RewardServerError, match="can't sleep"):
        await leases.release()
    async with held(leases):
        assert servers.told == ["wake", "sleep", "wake"]


async def test_an_error_under_a_lease_still_ends_it() -> None:
    servers = Servers()
    leases = leases_of(servers)
    with pytest.raises(ValueError, match="mine"):
        async with held(leases):
            raise ValueError("mine")
    assert servers.told == ["wake", "sleep"]


@given(st.lists(st.sampled_from(["acquire", "release", "done", "failed"]), max_size=60))
def test_whatever_happens_servers_are_asleep_only_without_need_once_all_is_done(events: list[str]) -> None:
    count = LeaseCount("asleep")
    running: list[str] = []
    for event in [*events, *["done"] * 3]:
        if event == "acquire":
            count.held += 1
        elif event == "release" and count.held:
            count.held -= 1
        elif running:
            running.pop()
            count.end(done=event == "done")
        if (change := count.begin()) is not None:
            assert not running
            running.append(change)
    assert not running
    assert count.state == ("awake" if count.held else "asleep")


async def test_ahead_returns_once_requests_may_wait_and_leaves_when_the_wake_is_over() -> None:
    servers = Servers()
    servers.may.clear()
    leases = leases_of(servers)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        lease = Lease(leases)
        taking = tasks.create_task(lease.take(ahead=True))
        while not servers.told:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)
        assert not taking.done()
        leases.announced.set()
        await taking
        assert state_of(leases) == "waking"
        back = tasks.create_task(lease.give_back())
        servers.may.set()
        await back
    assert (state_of(leases), leases.held, servers.told) == ("asleep", 0, ["wake", "sleep"])


async def test_a_wake_that_fails_is_raised_when_a_lease_that_was_taken_ahead_is_given_back() -> None:
    servers = Servers()
    servers.failures = 1
    leases = leases_of(servers)
    leases.announced.set()
    lease = Lease(leases)
    await lease.take(ahead=True)
    with pytest.raises(RewardServerError, match="can't wake"):
        await lease.give_back()
    assert leases.held == 0


@pytest.mark.parametrize("woken", [False, True])
async def test_a_lease_whose_taking_is_cancelled_is_held_by_nobody(woken: bool) -> None:
    """Also where it was cancelled in the very moment in which the servers were awake."""
    servers = Servers()
    servers.may.clear()
    leases = leases_of(servers)
    lease = Lease(leases)
    taking = asyncio.create_task(lease.take())
    while not servers.told:  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0)
    if woken:
        servers.may.set()
        while state_of(leases) != "awake":  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)
    taking.cancel()
    servers.may.set()
    await asyncio.wait([taking])
    await lease.give_back()
    await leases.settle()
    assert (state_of(leases), leases.held) == ("asleep", 0)


async def test_giving_back_what_was_never_taken_does_nothing() -> None:
    servers = Servers()
    await Lease(leases_of(servers)).give_back()
    assert servers.told == []
