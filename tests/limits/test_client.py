"""A limit that several processes keep together, seen from one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import uvloop

from reward_loop.config import RateLimitConfig
from reward_loop.deadline import within
from reward_loop.errors import ConfigError, RewardLoopError, ServerUnavailable
from reward_loop.limits.client import SharedLimiter, open_limiter
from reward_loop.limits.gate import Clock
from reward_loop.limits.reservation import Limiter
from reward_loop.limits.server import LimitServer
from tests.limits.processes import begin, free_address, hear, kill, peer

ONE = RateLimitConfig(max_concurrent=1)


@asynccontextmanager
async def shared(
    address: str, limits: RateLimitConfig = ONE, *, serves: bool = False, patience_s: float = 10.0
) -> AsyncGenerator[SharedLimiter]:
    limiter = SharedLimiter(limits, name="job", address=address, serves=serves, patience_s=patience_s)
    try:
        yield limiter
    finally:
        await limiter.close()


async def one_request(limiter: Limiter, tokens: int | None = None) -> None:
    async with asyncio.timeout(30.0), limiter.reserve(tokens):
        pass


async def held_back(limiter: SharedLimiter) -> asyncio.Task[None]:
    """A task that waits for its turn, and does not get it."""
    waiter = asyncio.create_task(one_request(limiter))
    await asyncio.wait([waiter], timeout=0.2)
    assert not waiter.done()
    return waiter


# -- sharing ---------------------------------------------------------------------------------------------------------


async def test_two_clients_share_one_limit() -> None:
    async with LimitServer() as server, shared(server.address) as one, shared(server.address) as other:
        async with one.reserve():
            waiter = await held_back(other)
        await waiter


async def test_many_requests_of_one_client_go_over_one_connection_in_their_order() -> None:
    limits = RateLimitConfig(max_concurrent=3, max_rpm=60_000)
    gone: list[int] = []

    async def ask(limiter: SharedLimiter, number: int) -> None:
        async with limiter.reserve():
            gone.append(number)

    async with LimitServer() as server, shared(server.address, limits) as limiter, asyncio.TaskGroup() as tasks:
        for number in range(500):
            tasks.create_task(ask(limiter, number))
    assert gone == list(range(500))


async def test_a_large_request_is_not_starved_by_another_client_s_small_ones() -> None:
    clock = Clock(speed=60.0)
    limits = RateLimitConfig(max_tpm=6_000, estimated_tokens_per_request=10)
    async with LimitServer(clock=clock) as server, shared(server.address, limits) as one, shared(server.address, limits) as other:
        await one_request(one)
        async with asyncio.TaskGroup() as tasks:

            async def small() -> None:
                while not large.done():
                    await one_request(one)

            began = clock.now()
            large = tasks.create_task(one_request(other, tokens=3_000))
            for _ in range(20):
                tasks.create_task(small())
        assert 25.0 <= clock.now() - began <= 60.0


async def test_a_429_halts_all_of_them() -> None:
    clock = Clock(speed=60.0)
    limits = RateLimitConfig(max_rpm=60_000)
    async with LimitServer(clock=clock) as server, shared(server.address, limits) as one, shared(server.address, limits) as other:
        await one_request(other)
        async with one.reserve() as reservation:
            reservation.throttled(15.0)
        await one_request(one)  # the server has heard of the 429 when this one goes
        began = clock.now()
        async with one.reserve() as reservation:
            reservation.throttled(30.0)
            waiter = asyncio.create_task(one_request(one))
            await one_request(other)
            await waiter
        assert clock.now() - began >= 29.9


async def test_what_was_used_is_booked_for_all() -> None:
    clock = Clock(speed=60.0)
    limits = RateLimitConfig(max_tpm=6_000, estimated_tokens_per_request=100)
    async with LimitServer(clock=clock) as server, shared(server.address, limits) as one, shared(server.address, limits) as other:
        await one_request(other)
        async with one.reserve() as reservation:
            reservation.used(2_000)
        began = clock.now()
        await one_request(one)
        await one_request(other)
        assert clock.now() - began >= 19.0


# -- giving back -----------------------------------------------------------------------------------------------------


async def test_being_cancelled_while_waiting_or_holding_gives_everything_back() -> None:
    async with LimitServer() as server, shared(server.address) as one, shared(server.address) as other:
        holding = asyncio.Event()

        async def hold() -> None:
            async with one.reserve():
                holding.set()
                await asyncio.Event().wait()

        holder = asyncio.create_task(hold())
        await holding.wait()
        waiter = await held_back(one)
        for task in (waiter, holder):
            task.cancel()
        await asyncio.wait([waiter, holder])
        assert waiter.cancelled()
        assert holder.cancelled()
        await one_request(other)


async def test_being_cancelled_while_connecting_leaves_it_to_the_next() -> None:
    async with shared(free_address(), serves=True) as limiter:
        first, second = (asyncio.create_task(one_request(limiter)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()


async def test_killing_a_process_that_holds_reservations_leaks_none() -> None:
    limits = RateLimitConfig(max_concurrent=3)
    async with (
        LimitServer() as server,
        shared(server.address, limits) as limiter,
        peer(server.address, limits, "hold", "10") as victim,
    ):
        await begin(victim)
        assert [await hear(victim) for _ in range(3)] == ["held"] * 3
        waiter = await held_back(limiter)
        await kill(victim)
        await waiter
        async with asyncio.timeout(10.0), AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(limiter.reserve())


async def test_closing_gives_back_and_whoever_waits_gets_an_error() -> None:
    async with LimitServer() as server, shared(server.address) as one, shared(server.address) as other:
        async with one.reserve():
            waiter = await held_back(one)
            await one.close()
            with pytest.raises(RewardLoopError, match="was closed while"):
                await waiter
            await one_request(other)
        with pytest.raises(RewardLoopError, match="was closed while"):
            await one_request(one)


# -- servers that come and go ----------------------------------------------------------------------------------------


async def test_at_a_configured_address_the_first_to_come_serves() -> None:
    address = free_address()
    limits = RateLimitConfig(max_concurrent=1, address=address)
    one, other = (open_limiter(limits, name="job") for _ in range(2))
    assert isinstance(one, SharedLimiter)
    assert isinstance(other, SharedLimiter)
    async with one.reserve():
        waiter = await held_back(other)
    await waiter
    assert (one.is_serving, other.is_serving) == (True, False)
    await other.close()
    await one.close()


async def test_many_that_come_at_once_agree_on_one_server() -> None:
    address = free_address()
    async with AsyncExitStack() as stack:
        limiters = [await stack.enter_async_context(shared(address, serves=True)) for _ in range(10)]
        inside = 0

        async def use(limiter: SharedLimiter) -> None:
            nonlocal inside
            async with limiter.reserve():
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

        async with asyncio.timeout(30.0), asyncio.TaskGroup() as tasks:
            for limiter in limiters:
                tasks.create_task(use(limiter))
        assert [limiter.is_serving for limiter in limiters].count(True) == 1


async def test_when_the_serving_process_is_killed_another_one_takes_over() -> None:
    address = free_address()
    async with peer(address, ONE, "serve") as server, shared(address, serves=True) as one, shared(address, serves=True) as other:
        await begin(server)
        assert await hear(server) == "served"
        async with one.reserve():
            waiters = [await held_back(one), await held_back(other)]
            await kill(server)
            await asyncio.wait(waiters, timeout=1.0)
            assert not any(waiter.done() for waiter in waiters)  # what `one` holds is declared to the new server
        for waiter in waiters:
            await waiter
        assert {one.is_serving, other.is_serving} == {True, False}


async def test_who_takes_over_waits_for_holders_and_begins_with_nothing_saved_up() -> None:
    address = free_address()
    limits = RateLimitConfig(max_rpm=60)
    loop = asyncio.get_running_loop()
    async with peer(address, limits, "serve") as server, shared(address, limits, serves=True) as limiter:
        await begin(server)
        assert await hear(server) == "served"
        await one_request(limiter)
        await kill(server)
        began = loop.time()
        await one_request(limiter)
        assert loop.time() - began >= 2.95


async def test_a_server_of_others_that_comes_back_is_found_again() -> None:
    address = free_address()
    host, port = address.split(":")
    async with shared(address) as limiter:
        async with LimitServer(host, int(port)), limiter.reserve():
            pass
        waiter = await held_back(limiter)
        async with LimitServer(host, int(port)):
            await waiter
        assert not limiter.is_serving


async def test_a_server_that_can_not_be_reached_is_an_error_that_names_it_for_all_who_wait() -> None:
    address = free_address()
    async with shared(address, patience_s=0.3) as limiter:
        results = await asyncio.gather(*(one_request(limiter) for _ in range(5)), return_exceptions=True)
        for error in results:
            assert isinstance(error, ServerUnavailable)
            assert f"'job' at {address} can't be reached" in str(error)


async def test_the_search_for_a_server_does_not_count_towards_the_deadline() -> None:
    async with shared(free_address(), patience_s=0.5) as limiter:
        with pytest.raises(ServerUnavailable):
            await within(one_request(limiter), timeout_s=0.1)


async def test_something_else_at_the_address_is_an_error_that_says_so() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        address = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
        async with shared(address, patience_s=0.2) as limiter:
            with pytest.raises(ServerUnavailable, match="each line must be a JSON object"):
                await one_request(limiter)


async def test_another_token_is_refused_at_once() -> None:
    async with LimitServer(token="secret") as server, shared(server.address) as limiter:
        with pytest.raises(ConfigError, match="give every process the same"):
            await one_request(limiter)


async def test_serving_other_machines_without_a_token_is_refused() -> None:
    _, port = free_address().split(":")
    async with shared(f"0.0.0.0:{port}", serves=True) as limiter:
        with pytest.raises(ConfigError, match="needs a token"):
            await one_request(limiter)


async def test_the_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_SECRET", "secret")
    async with LimitServer(token="secret") as server:
        settings = RateLimitConfig(max_concurrent=1, address=server.address, token_env="THE_SECRET")
        limiter = open_limiter(settings, name="requests")
        await one_request(limiter)
        await limiter.close()


def test_a_secret_that_is_not_set_is_said() -> None:
    settings = RateLimitConfig(max_concurrent=1, address="127.0.0.1:1", token_env="NO_SUCH_SECRET")
    with pytest.raises(ConfigError, match="NO_SUCH_SECRET is not set"):
        open_limiter(settings, name="requests")


@pytest.mark.parametrize("tokens", [-1, 10**9 + 1])
async def test_tokens_that_can_not_be_booked_are_refused(tokens: int) -> None:
    async with LimitServer() as server, shared(server.address) as limiter:
        with pytest.raises(ConfigError, match=rf"reserve\(tokens={tokens}\)"):
            await one_request(limiter, tokens)
        await one_request(limiter)


def test_it_works_on_uvloop() -> None:
    async def use() -> None:
        async with LimitServer() as server, shared(server.address) as one, shared(server.address) as other:
            async with one.reserve():
                waiter = await held_back(other)
            await waiter

    uvloop.run(use())
