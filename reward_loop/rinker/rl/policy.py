"""The weights that are sampled from at the moment, and how often a call of the sampler is tried."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass
from typing import Protocol

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.rendering import StopCondition, TokenCompleter, TokensWithLogprobs
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams

logger = logging.getLogger(__name__)

_SEEDS = 2**31


class SamplingClientLike(Protocol):
    """What the loop asks of a SamplingClient."""

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> APIFuture[SampleResponse]:
        """Draw sequences."""
        ...

    def compute_logprobs(self, prompt: ModelInput) -> APIFuture[list[float | None]]:
        """Return the log-probability of each token."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How answers are drawn."""

    max_tokens: int | None = None
    temperature: float = 1.0
    seed: int = 0
    attempts: int = 3
    backoff_s: float = 0.5
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Policy:
    """Weights that have made `step` steps."""

    client: SamplingClientLike
    step: int
    settings: SamplingSettings

    def completer(self, *key: object) -> TokenCompleter:
        """Return what draws the answers of one episode; `key` names it, so that with the same seed it draws the same."""
        return _PolicyCompleter(self.client, self.settings, f"{self.settings.seed}/{'/'.join(map(str, key))}")


class _PolicyCompleter(TokenCompleter):
    def __init__(self, client: SamplingClientLike, settings: SamplingSettings, name: str) -> None:
        self._client, self._settings, self._name = client, settings, name
        self._turns = 0

    async def __call__(self, model_input: ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        settings = self._settings
        # crc32, not hash(): a resumed run draws with the same seeds in another process.
        seed = zlib.crc32(f"{self._name}/{self._turns}".encode()) % _SEEDS
        params = SamplingParams(settings.max_tokens, seed, stop, settings.temperature)
        self._turns += 1
        for attempt in range(1, settings.attempts + 1):
            try:
                return await self._once(model_input, params)
            except (RequestFailedError, TimeoutError) as error:
                useless = isinstance(error, RequestFailedError) and error.category == "user"
                if useless or attempt == settings.attempts:
                    raise
                logger.warning("episode=%s attempt=%d of %d failed: %s", self._name, attempt, settings.attempts, error)
                await asyncio.sleep(settings.backoff_s * 2 ** (attempt - 1))
        raise AssertionError  # attempts is at least 1

    async def _once(self, model_input: ModelInput, params: SamplingParams) -> TokensWithLogprobs:
        future = self._client.sample(model_input, 1, params)
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await future
        except BaseException:  # cancelled or late: nobody waits for it any more
            future.future().cancel()
            raise
        sequence = response.sequences[0]
        return TokensWithLogprobs(sequence.tokens, sequence.logprobs, sequence.stop_reason)
