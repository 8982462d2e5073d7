"""A unit ends at its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reward_loop.data import DataProto
from reward_loop.deadline import late, within
from reward_loop.errors import RewardTimeout
from reward_loop.managers.deadline import with_deadline
from reward_loop.outcome import Reward
from tests.fakes import text_batch


async def test_what_is_in_time_is_the_result() -> None:
    async def scorer(data: DataProto) -> Sequence[Reward | Exception]:
        return [Reward(float(len(data)))]

    assert await with_deadline(scorer, 5.0)(text_batch(["a"])) == [Reward(1.0)]


async def test_what_is_late_is_cancelled() -> None:
    ended: list[str] = []

    async def scorer(data: DataProto) -> Sequence[Reward | Exception]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return []

    with pytest.raises(RewardTimeout, match=r"not scored within 0\.01 s \(reward_model\.timeout_s\)"):
        await with_deadline(scorer, 0.01)(text_batch(["a"]))
    assert ended == ["cancelled"]


async def test_a_timeout_of_the_functions_own_stays_its_own() -> None:
    async def scorer(data: DataProto) -> Sequence[Reward | Exception]:
        raise TimeoutError("the judge did not answer")

    with pytest.raises(TimeoutError, match="the judge did not answer"):
        await with_deadline(scorer, 5.0)(text_batch(["a"]))


async def test_without_a_limit_nothing_is_late() -> None:
    assert await within(asyncio.sleep(0, "done"), None) == "done"


async def test_being_cancelled_is_not_being_late() -> None:
    async def waits() -> None:
        await within(asyncio.Event().wait(), 5.0)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_error_names_limit_and_setting() -> None:
    assert str(late(2.5)) == "not scored within 2.5 s (reward_model.timeout_s)"
