"""The weights that are sampled from at the moment, and how answers are drawn from them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.rendering import StopCondition, TokenCompleter, TokensWithLogprobs
from reward_loop.rinker.rl.config import FailureConfig, RLConfig
from reward_loop.rinker.rl.sampler_call import answered
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams

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

    max_tokens: int
    temperature: float
    seed: int
    failures: FailureConfig

    @classmethod
    def of(cls, config: RLConfig, temperature: float) -> SamplingSettings:
        """Return a run's settings, with the temperature of training or of evaluation."""
        return cls(config.max_tokens, temperature, config.seed, config.failures)


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
        ask = partial(self._client.sample, model_input, 1, params)
        response = await answered(ask, settings.failures, f"episode={self._name}")
        sequence = response.sequences[0]
        return TokensWithLogprobs(sequence.tokens, sequence.logprobs, sequence.stop_reason)
