"""The wrapper that ends a unit at its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from reward_loop.data import DataProto
from reward_loop.errors import RewardTimeout
from reward_loop.managers.scorer import Scorer
from reward_loop.outcome import Reward

T = TypeVar("T")


def with_deadline(scorer: Scorer, timeout_s: float) -> Scorer:
    """Return a scorer that is cancelled and raises RewardTimeout where `scorer` takes longer than `timeout_s` seconds."""

    async def score(data: DataProto) -> Sequence[Reward | Exception]:
        return await within(scorer(data), timeout_s)

    return score


async def within(awaitable: Awaitable[T], timeout_s: float | None) -> T:
    """Await for at most `timeout_s` seconds (None: for ever), then cancel and raise RewardTimeout."""
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await awaitable
    except TimeoutError:
        if deadline.expired():
            raise late(timeout_s) from None
        raise


def late(timeout_s: float | None) -> RewardTimeout:
    """Return the error of a sample that was over its deadline."""
    return RewardTimeout(f"not scored within {timeout_s} s (reward_model.timeout_s)")
