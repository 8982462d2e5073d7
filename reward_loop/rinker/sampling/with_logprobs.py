"""Log-probabilities for a sampler whose backend gives none: another one reads what was drawn, from the same snapshot."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall, Sampler, Snapshot
from reward_loop.rinker.types import ModelInput, SampledSequence, SampleResponse, SamplingParams

logger = logging.getLogger(__name__)


class WithLogprobs:
    """A `Sampler` that draws with `inner`, and has `scorer` (an HFSampler) compute the log-probabilities that are missing.

    What `inner` gives is taken as it is. The log-probabilities are those of the model itself, so they do not depend on how its
    tokens were drawn.
    """

    def __init__(self, inner: Sampler, scorer: Sampler) -> None:
        self._inner = inner
        self._scorer = scorer
        self._warned = False

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`."""
        response = await self._inner.sample(snapshot, call)
        if all(sequence.logprobs is not None for sequence in response.sequences):
            return response
        self._warn()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._scored(snapshot, call, sequence)) for sequence in response.sequences]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return replace(response, sequences=[task.result() for task in tasks])

    async def close(self) -> None:
        """See `Sampler.close`; closes both."""
        try:
            await self._inner.close()
        finally:
            await self._scorer.close()

    async def _scored(self, snapshot: Snapshot, call: SampleCall, sequence: SampledSequence) -> SampledSequence:
        if sequence.logprobs is not None or not sequence.tokens:
            return replace(sequence, logprobs=sequence.logprobs or [])
        text = ModelInput.from_ints([*call.prompt.to_ints(), *sequence.tokens])
        reading = SampleCall(text, 1, SamplingParams(max_tokens=1, temperature=0.0), include_prompt_logprobs=True)
        scores = (await self._scorer.sample(snapshot, reading)).prompt_logprobs
        drawn = [] if scores is None else [score for score in scores[-len(sequence.tokens) :] if score is not None]
        if len(drawn) != len(sequence.tokens):
            raise RequestFailedError(
                "the scorer gave no log-probabilities either; use an HFSampler as the scorer", category="server"
            )
        return replace(sequence, logprobs=drawn)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            name = type(self._inner).__name__
            logger.warning("%s gives no log-probabilities; they are computed by another pass over what it drew", name)
