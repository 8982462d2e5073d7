"""The wrapper that tries a failed unit again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from reward_loop.config import RetryConfig
from reward_loop.data import DataProto
from reward_loop.errors import ConfigError, DataError, Unscorable
from reward_loop.managers.scorer import Scorer
from reward_loop.outcome import Reward


def with_retry(scorer: Scorer, config: RetryConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> Scorer:
    """Return a scorer that tries up to `config.attempts` times, waiting `backoff_s`, twice that, … up to `max_backoff_s`.

    Each attempt has the whole deadline. What another attempt can't mend (bad data, an unscorable sample) is not tried again.
    """

    async def score(data: DataProto) -> Sequence[Reward | Exception]:
        attempts = AsyncRetrying(
            stop=stop_after_attempt(config.attempts),
            wait=wait_exponential(multiplier=config.backoff_s, max=config.max_backoff_s),
            retry=retry_if_exception(_may_pass),
            sleep=sleep,
            reraise=True,
        )
        return await attempts(scorer, data)

    return score


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, ConfigError | DataError | Unscorable)
