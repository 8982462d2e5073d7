"""A call on its way: the sequences that are drawn for it, and the future that waits for them."""

from __future__ import annotations

import concurrent.futures
import uuid
from dataclasses import dataclass, field

import numpy as np

from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.profile import ModelProfile
from reward_loop.rinker.sampling.stops import Stops
from reward_loop.rinker.sampling.uniforms import sample_keys
from reward_loop.rinker.types import SampledSequence, SampleResponse
from reward_loop.rinker.types.sample_response import StopReason

TopLogprobs = list[tuple[int, float]]


@dataclass(slots=True)
class PromptScores:
    """What the model makes of the tokens of a prompt; the first has nothing before it."""

    logprobs: list[float | None]
    top: list[TopLogprobs | None] | None = None


@dataclass(slots=True, eq=False)
class Job:
    """A call whose prompt and limits have been checked."""

    snapshot: Snapshot
    profile: ModelProfile
    call: SampleCall
    prompt: list[int]
    max_tokens: int
    seed: int
    stops: Stops
    future: concurrent.futures.Future[SampleResponse] = field(default_factory=concurrent.futures.Future)
    rows: list[Row] = field(init=False)
    prompt_scores: PromptScores | None = None

    def __post_init__(self) -> None:
        self.rows = [Row(self, key) for key in sample_keys(self.seed, self.call.num_samples)]

    @property
    def wants_prompt_scores(self) -> bool:
        """Whether the log-probabilities of the prompt are asked for."""
        return self.call.include_prompt_logprobs or self.call.topk_prompt_logprobs > 0

    def settle(self) -> None:
        """Hand over the result once every sequence has ended."""
        if all(row.stop_reason is not None for row in self.rows) and self.future.set_running_or_notify_cancel():
            self.future.set_result(self._response())

    def fail(self, error: Exception) -> None:
        """Hand over an error, unless there is a result or nobody waits any more."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _response(self) -> SampleResponse:
        name = uuid.uuid4().hex
        scores = self.prompt_scores
        sequences = [row.sequence(f"{name}:{number}") for number, row in enumerate(self.rows)]
        logprobs = scores.logprobs if scores is not None and self.call.include_prompt_logprobs else None
        return SampleResponse(sequences, logprobs, None if scores is None else scores.top)


@dataclass(slots=True, eq=False)
class Row:
    """One sequence of a call."""

    job: Job
    key: np.uint64
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[TopLogprobs | None] = field(default_factory=list)
    stop_reason: StopReason | None = None

    @property
    def live(self) -> bool:
        """Whether it still takes tokens, and somebody waits for them."""
        return self.stop_reason is None and not self.job.future.done()

    @property
    def longest(self) -> int:
        """How many tokens it may come to, the prompt included."""
        return len(self.job.prompt) + self.job.max_tokens

    def add(self, token: int, logprob: float) -> None:
        """Take the next token, and see whether it is the last."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.job.stops.end(self.tokens):
            self.stop_reason = "stop"
        elif len(self.tokens) >= self.job.max_tokens:
            self.stop_reason = "length"

    def sequence(self, sequence_id: str) -> SampledSequence:
        """Return it as the caller sees it."""
        top = self.top if self.job.call.topk_sample_logprobs else None
        return SampledSequence(self.stop_reason or "length", self.tokens, self.logprobs, sequence_id, top)
