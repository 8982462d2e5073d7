"""A sample's deadline, and that it stands still while the sample waits for its turn."""

from __future__ import annotations

import asyncio

import pytest

from reward_loop.deadline import parts_under_way, waiting, within
from reward_loop.errors import RewardTimeout


async def wait(seconds: float) -> None:
    with waiting():
        await asyncio.sleep(seconds)


async def test_what_is_over_its_deadline_is_a_reward_timeout() -> None:
    with pytest.raises(RewardTimeout, match=r"not scored within 0\.05 s \(reward_model\.timeout_s\)"):
        await within(asyncio.sleep(10), 0.05)


async def test_waiting_does_not_count() -> None:
    async def scored() -> str:
        await wait(0.3)
        return "done"

    assert await within(scored(), 0.1) == "done"


async def test_work_before_and_after_a_wait_counts_together() -> None:
    async def scored() -> None:
        await asyncio.sleep(0.06)
        await wait(0.3)
        await asyncio.sleep(10)

    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(RewardTimeout):
        await within(scored(), 0.1)
    assert 0.39 <= loop.time() - started < 5


async def test_the_clock_stands_still_until_the_last_of_several_waits_is_over() -> None:
    async def scored() -> str:
        await asyncio.gather(wait(0.02), wait(0.4))
        return "done"

    assert await within(scored(), 0.1) == "done"


async def test_the_clock_of_a_part_and_that_of_the_whole_stand_still_together() -> None:
    async def scored(inner_s: float | None) -> str:
        await within(wait(0.3), inner_s)
        return "done"

    assert await within(scored(0.1), 0.15) == "done"
    assert await within(scored(None), 0.1) == "done"


async def test_waiting_within_waiting_is_one_wait() -> None:
    async def scored() -> str:
        with waiting():
            await wait(0.1)
            await asyncio.sleep(0.2)
        return "done"

    assert await within(scored(), 0.1) == "done"


async def test_the_function_s_own_time_out_is_its_own() -> None:
    async def scored() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await within(scored(), 10.0)


async def test_without_a_deadline_waiting_costs_nothing() -> None:
    await wait(0.0)
    assert await within(asyncio.sleep(0, "done"), None) == "done"


async def test_what_was_under_way_is_named() -> None:
    async def work() -> None:
        parts = parts_under_way()
        assert parts is not None
        parts.update(("fetching", "parsing"))
        parts.discard("parsing")
        await asyncio.Event().wait()

    with pytest.raises(RewardTimeout, match=r"\(reward_model\.timeout_s\): fetching had not ended"):
        await within(work(), 0.01)
    assert parts_under_way() is None
