"""What answers a prompt: with tokens for training, with messages for everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from reward_loop.errors import DataError
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.rendering.message import Message, MessageLike
from reward_loop.rinker.rendering.renderer import Renderer
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams

StopCondition: TypeAlias = Sequence[str] | Sequence[int]
"""Texts or tokens that end an answer."""


class SamplesTokens(Protocol):
    """The one method of a SamplingClient that completers use."""

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> APIFuture[SampleResponse]:
        """Draw sequences."""
        ...


@dataclass(frozen=True, slots=True)
class TokensWithLogprobs:
    """An answer as tokens; its log-probabilities may be unknown."""

    tokens: list[int]
    maybe_logprobs: list[float] | None = None
    stop_reason: str = "stop"

    @property
    def logprobs(self) -> list[float]:
        """The log-probability of each token; DataError where the sampler gave none."""
        if self.maybe_logprobs is None:
            raise DataError("this answer has no log-probabilities; take a sampler that gives them, or don't train on it")
        return self.maybe_logprobs


class TokenCompleter(ABC):
    """Answers tokens with tokens."""

    @abstractmethod
    async def __call__(self, model_input: ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        """Return one answer, with the token that ended it."""


class MessageCompleter(ABC):
    """Answers a conversation with a message."""

    @abstractmethod
    async def __call__(self, messages: Sequence[MessageLike]) -> Message:
        """Return one answer."""


@dataclass(frozen=True, slots=True)
class TinkerTokenCompleter(TokenCompleter):
    """A sampling client as a completer of tokens."""

    sampling_client: SamplesTokens
    max_tokens: int | None = None
    temperature: float = 1.0

    async def __call__(self, model_input: ModelInput, stop: StopCondition) -> TokensWithLogprobs:
        """See `TokenCompleter`."""
        params = SamplingParams(max_tokens=self.max_tokens, stop=stop, temperature=self.temperature)
        response = await self.sampling_client.sample(model_input, 1, params)
        sequence = response.sequences[0]
        return TokensWithLogprobs(sequence.tokens, sequence.logprobs, sequence.stop_reason)


@dataclass(frozen=True, slots=True)
class TinkerMessageCompleter(MessageCompleter):
    """A sampling client as a completer of messages, in the words of a renderer."""

    sampling_client: SamplesTokens
    renderer: Renderer
    max_tokens: int | None = None
    temperature: float = 1.0

    async def __call__(self, messages: Sequence[MessageLike]) -> Message:
        """See `MessageCompleter`."""
        tokens = TinkerTokenCompleter(self.sampling_client, self.max_tokens, self.temperature)
        prompt = self.renderer.build_generation_prompt(messages)
        answer = await tokens(prompt, self.renderer.get_stop_sequences())
        message, _ = self.renderer.parse_response(answer.tokens)
        return message
