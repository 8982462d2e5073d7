"""A failed unit is tried again, unless trying again can't mend it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reward_loop.config import RetryConfig
from reward_loop.data import DataProto
from reward_loop.errors import ConfigError, DataError, InvalidReward, RewardTimeout, Unscorable, WorkerDied
from reward_loop.managers.retry import with_retry
from reward_loop.outcome import Reward
from tests.fakes import text_batch


class Flaky:
    """Raises these errors, one per call, then scores; its clock only notes how long it was asked to wait."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.waits: list[float] = []

    async def __call__(self, data: DataProto) -> Sequence[Reward | Exception]:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return [Reward(1.0)]

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def scored(self, attempts: int, backoff_s: float = 1.0, max_backoff_s: float = 30.0) -> Sequence[Reward | Exception]:
        config = RetryConfig(attempts=attempts, backoff_s=backoff_s, max_backoff_s=max_backoff_s)
        return await with_retry(self, config, self.sleep)(text_batch(["a"]))


async def test_what_succeeds_is_called_once() -> None:
    scorer = Flaky()
    assert await scorer.scored(3) == [Reward(1.0)]
    assert (scorer.calls, scorer.waits) == (1, [])


@pytest.mark.parametrize("error", [ConnectionError(), RewardTimeout("late"), InvalidReward("nan"), WorkerDied("exit code 1")])
async def test_what_may_pass_is_tried_again(error: Exception) -> None:
    scorer = Flaky(error)
    assert await scorer.scored(2) == [Reward(1.0)]
    assert scorer.calls == 2


async def test_the_waits_double_up_to_the_longest() -> None:
    scorer = Flaky(*(ConnectionError() for _ in range(5)))
    await scorer.scored(6, backoff_s=0.5, max_backoff_s=3.0)
    assert scorer.waits == [0.5, 1.0, 2.0, 3.0, 3.0]


async def test_the_last_error_comes_through() -> None:
    scorer = Flaky(ConnectionError("first"), ConnectionError("second"), ConnectionError("third"))
    with pytest.raises(ConnectionError, match="second"):
        await scorer.scored(2)
    assert scorer.calls == 2


@pytest.mark.parametrize("error", [Unscorable("empty"), DataError("no text"), ConfigError("no tokenizer")])
async def test_what_another_attempt_cannot_mend_is_not_tried_again(error: Exception) -> None:
    scorer = Flaky(error)
    with pytest.raises(type(error)):
        await scorer.scored(3)
    assert (scorer.calls, scorer.waits) == (1, [])


async def test_being_cancelled_ends_the_attempts() -> None:
    scorer = Flaky(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await scorer.scored(3)
    assert scorer.calls == 1


async def test_units_are_tried_again_on_their_own() -> None:
    scorer = Flaky(ConnectionError(), ConnectionError())
    score = with_retry(scorer, RetryConfig(attempts=3), scorer.sleep)
    one, other = await asyncio.gather(score(text_batch(["a"])), score(text_batch(["b"])))
    assert one == other == [Reward(1.0)]
    assert scorer.calls == 4
