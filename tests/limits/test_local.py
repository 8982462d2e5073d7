"""A limit within one process."""

from __future__ import annotations

import asyncio

import pytest

from reward_loop.config import RateLimitConfig
from reward_loop.deadline import within
from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.limits.client import open_limiter
from reward_loop.limits.gate import Clock
from reward_loop.limits.local import LocalLimiter
from reward_loop.limits.reservation import Limiter

FAST = Clock(speed=60.0)


async def ask(limiter: Limiter, gone: list[int], number: int, tokens: int | None = None) -> None:
    async with limiter.reserve(tokens):
        gone.append(number)


async def asleep(seconds: float, clock: Clock = FAST) -> None:
    """Let so much time of the limits pass."""
    await asyncio.sleep(clock.real_s(seconds))


def test_without_an_address_a_limit_is_this_process_s_own() -> None:
    assert isinstance(open_limiter(RateLimitConfig(max_rpm=1), name="job"), LocalLimiter)


async def test_requests_go_in_the_order_in_which_they_asked() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_rpm=600, max_tpm=10**6, max_concurrent=3), FAST)
    gone: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(60):
            tasks.create_task(ask(limiter, gone, number, tokens=(number * 7919) % 20_000))
    assert gone == list(range(60))


async def test_requests_keep_to_the_rate() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_rpm=600), FAST)
    began = FAST.now()
    gone: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(310):
            tasks.create_task(ask(limiter, gone, number))
    assert FAST.now() - began >= 29.99  # 10 at once, the others in half a minute


async def test_no_more_than_the_limit_are_in_flight() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_concurrent=3))
    inside, most = 0, 0

    async def one() -> None:
        nonlocal inside, most
        async with limiter.reserve():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(one())
    assert most == 3


async def test_being_cancelled_while_waiting_or_holding_gives_everything_back() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_concurrent=1))
    holding = asyncio.Event()

    async def hold() -> None:
        async with limiter.reserve():
            holding.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await holding.wait()
    waiter = asyncio.create_task(hold())
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    await asyncio.wait([holder, waiter])
    assert holder.cancelled()
    assert waiter.cancelled()
    async with asyncio.timeout(5.0), limiter.reserve():
        pass


async def test_a_request_that_is_cancelled_at_the_moment_it_may_go_is_given_back() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_concurrent=1))
    async with limiter.reserve():
        waiter = asyncio.create_task(ask(limiter, [], 0))
        await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    async with asyncio.timeout(5.0), limiter.reserve():
        pass


async def test_the_wait_does_not_count_towards_the_deadline() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_rpm=60), Clock(speed=2.0))
    await ask(limiter, [], 0)
    await within(ask(limiter, [], 1), timeout_s=0.1)  # it waits half a second


async def test_a_429_halts_everyone() -> None:
    limiter = LocalLimiter(RateLimitConfig(), FAST)
    async with limiter.reserve() as reservation:
        reservation.throttled(12.0)
    began = FAST.now()
    await ask(limiter, [], 0)
    assert FAST.now() - began >= 11.9


async def test_what_was_used_takes_the_place_of_the_estimate() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_tpm=6_000, estimated_tokens_per_request=100), FAST)
    async with limiter.reserve() as reservation:
        reservation.used(1600)
    began = FAST.now()
    await ask(limiter, [], 0)
    assert FAST.now() - began >= 15.9


async def test_whoever_waits_when_the_limit_is_closed_gets_an_error() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_concurrent=1))
    async with limiter.reserve():
        waiter = asyncio.create_task(ask(limiter, [], 0))
        await asyncio.sleep(0)
        await limiter.close()
        with pytest.raises(RewardLoopError, match="the rate limit was closed while this request waited"):
            await waiter


@pytest.mark.parametrize("tokens", [-1, 10**9 + 1])
async def test_tokens_that_cannot_be_booked_are_refused(tokens: int) -> None:
    with pytest.raises(ConfigError, match=rf"reserve\(tokens={tokens}\)"):
        await ask(LocalLimiter(RateLimitConfig()), [], 0, tokens)


def test_one_loop_after_the_other_may_use_it() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_rpm=6_000), FAST)
    gone: list[int] = []
    for number in range(250):
        asyncio.run(ask(limiter, gone, number))
    assert gone == list(range(250))


class CountingClock(Clock):
    """Notes how often it is read."""

    reads = 0

    def now(self) -> float:
        type(self).reads += 1
        return super().now()


async def test_ten_thousand_that_wait_wake_up_once_each() -> None:
    limiter = LocalLimiter(RateLimitConfig(max_rpm=10**6, max_concurrent=8), CountingClock(speed=60.0))
    gone: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(10_000):
            tasks.create_task(ask(limiter, gone, number))
    assert gone == list(range(10_000))
    assert CountingClock.reads < 10 * 10_000
