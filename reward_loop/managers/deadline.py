"""The wrapper that ends a unit at its deadline."""

from __future__ import annotations

from collections.abc import Sequence

from reward_loop.data import DataProto
from reward_loop.deadline import within
from reward_loop.managers.scorer import Scorer
from reward_loop.outcome import Reward


def with_deadline(scorer: Scorer, timeout_s: float) -> Scorer:
    """Return a scorer that is cancelled and raises RewardTimeout where `scorer` takes longer than `timeout_s` seconds."""

    async def score(data: DataProto) -> Sequence[Reward | Exception]:
        return await within(scorer(data), timeout_s)

    return score
