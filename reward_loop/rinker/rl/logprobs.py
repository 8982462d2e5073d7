"""What another model would have given the tokens of sequences: a reference, or the policy after a step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.policy import SamplingClientLike
from reward_loop.rinker.rl.rollouts import first_of
from reward_loop.rinker.rl.sampler_call import answered
from reward_loop.rinker.rl.training_sequence import FloatArray, TrainingSequence
from reward_loop.rinker.types import ModelInput

_AT_A_TIME = 64


async def logprobs_of(
    sequences: Sequence[TrainingSequence], client: SamplingClientLike, failures: FailureConfig
) -> list[FloatArray]:
    """Return, for every sequence, the model's log-probability of each of its targets, [T - 1]; a bounded number at a time.

    RequestFailedError where one can't be had in as many attempts as a sample.
    """
    room = asyncio.Semaphore(_AT_A_TIME)

    async def known(sequence: TrainingSequence) -> FloatArray:
        prompt = ModelInput.from_ints(sequence.tokens)
        async with room:
            logprobs = await answered(partial(client.compute_logprobs, prompt), failures, "log-probabilities")
        return np.asarray([0.0 if value is None else value for value in logprobs[1:]], dtype=np.float64)

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(known(sequence)) for sequence in sequences]
    except BaseExceptionGroup as failed:
        first = first_of(failed)
        raise first from first.__cause__
    return [task.result() for task in running]
