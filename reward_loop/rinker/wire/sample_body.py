"""A call of `sample` in JSON."""

from __future__ import annotations

from typing import Literal, Self

from reward_loop.errors import DataError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import EncodedTextChunk, ModelInput, SamplingParams
from reward_loop.rinker.wire.body import Body, Name, Number, Request
from reward_loop.rinker.wire.datums import MOST_TOKEN

_MOST = (1 << 63) - 1


class ChunkBody(Body):
    """Some tokens."""

    type: Literal["encoded_text"] = "encoded_text"
    tokens: list[int]


class PromptBody(Body):
    """What the model reads first."""

    chunks: list[ChunkBody]


class Sample(Request):
    """Asks a sampling session for sequences."""

    sampling_session_id: Name
    seq_id: Number
    num_samples: int = 1
    prompt: PromptBody
    sampling_params: SamplingParams
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    # What this server does not do; asked for, it says so and does nothing else instead.
    record_stability_info: Literal[False] | None = None
    prompt_alt_tokens_k: Literal[0] = 0
    prompt_logprobs_last_n: None = None
    target_prompt_logprobs: None = None

    @classmethod
    def of(cls, session_id: str, seq_id: int, call: SampleCall) -> Self:
        """Return the body that asks for what `call` says. Raises DataError."""
        chunks = [{"tokens": list(chunk.tokens)} for chunk in call.prompt.chunks]
        return cls.made(
            sampling_session_id=session_id,
            seq_id=seq_id,
            num_samples=call.num_samples,
            prompt={"chunks": chunks},
            sampling_params=call.params,
            prompt_logprobs=call.include_prompt_logprobs,
            topk_prompt_logprobs=call.topk_prompt_logprobs,
            topk_sample_logprobs=call.topk_sample_logprobs,
        )

    def call(self, max_samples: int) -> SampleCall:
        """Return what is asked for. Raises DataError for more sequences than may be drawn at once, and for impossible tokens."""
        if not 1 <= self.num_samples <= max_samples:
            raise DataError(f"num_samples={self.num_samples} must be from 1 to {max_samples}; ask several times for more")
        if any(not 0 <= token <= MOST_TOKEN for chunk in self.prompt.chunks for token in chunk.tokens):
            raise DataError(f"the prompt holds what is no token; one is a number from 0 to {MOST_TOKEN}")
        params = self.sampling_params
        if any(abs(number or 0) > _MOST for number in (params.max_tokens, params.seed, params.top_k)):
            raise DataError(f"max_tokens, seed and top_k must be numbers from {-_MOST} to {_MOST}")
        return SampleCall(
            ModelInput([EncodedTextChunk(chunk.tokens) for chunk in self.prompt.chunks]),
            self.num_samples,
            self.sampling_params,
            bool(self.prompt_logprobs),
            self.topk_prompt_logprobs,
            self.topk_sample_logprobs,
        )


class SampleMany(Body):
    """Calls that were made in the same moment. Not the SDK's."""

    samples: list[Sample]
