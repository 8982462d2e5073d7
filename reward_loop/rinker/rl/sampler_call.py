"""One call of a sampler: how often it is tried, and for how long each time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.rl.config import FailureConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def answered(ask: Callable[[], APIFuture[T]], failures: FailureConfig, what: str) -> T:
    """Return what a sampler answers to `ask`, which is `what` in the logs.

    RequestFailedError of the last attempt, or of the first that was the asker's own fault.
    """
    attempts = failures.sample_attempts
    for attempt in range(1, attempts + 1):
        try:
            return await _once(ask, failures.sample_timeout_s)
        except RequestFailedError as error:
            if error.category == "user" or attempt == attempts:
                raise
            logger.warning("%s attempt=%d of %d failed: %s", what, attempt, attempts, error)
            await asyncio.sleep(failures.backoff_s * 2 ** (attempt - 1))
    raise AssertionError  # attempts is at least 1


async def _once(ask: Callable[[], APIFuture[T]], timeout_s: float) -> T:
    future = ask()
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError as error:
        future.future().cancel()
        message = f"a call of the sampler took longer than sample_timeout_s={timeout_s:g}; raise it"
        raise RequestFailedError(message, category="server") from error
    except BaseException:  # cancelled: nobody waits for it any more
        future.future().cancel()
        raise
