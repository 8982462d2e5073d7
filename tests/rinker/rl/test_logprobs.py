"""Asking another model for log-probabilities: many at once, again where it failed, and not for ever."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.logprobs import logprobs_of
from reward_loop.rinker.rl.training_sequence import TrainingSequence
from tests.rinker.rl.scripted import ScriptedClient


def sequences(count: int) -> list[TrainingSequence]:
    return [TrainingSequence([one, 1, 2], np.zeros(2), np.zeros(2), np.ones(2)) for one in range(count)]


async def first_token(prompt: list[int]) -> list[float | None]:
    return [None, *[-float(prompt[0])] * (len(prompt) - 1)]


async def test_sequences_are_asked_for_at_once_but_not_all_of_very_many() -> None:
    client = ScriptedClient(score=first_token)
    found = await logprobs_of(sequences(100), client, FailureConfig())
    assert [one.tolist() for one in found] == [[-float(n)] * 2 for n in range(100)]
    assert client.most_running == 64


async def test_a_model_that_failed_or_hung_is_asked_again() -> None:
    asked: list[int] = []

    async def shaky(prompt: list[int]) -> list[float | None]:
        asked.append(prompt[0])
        if asked.count(prompt[0]) == 1:
            if prompt[0]:
                raise RequestFailedError("gone", category="server")
            await asyncio.Event().wait()
        return await first_token(prompt)

    patience = FailureConfig(backoff_s=0.0, sample_timeout_s=0.05)
    found = await logprobs_of(sequences(2), ScriptedClient(score=shaky), patience)
    assert [one.tolist() for one in found] == [[0.0, 0.0], [-1.0, -1.0]]
    assert sorted(asked) == [0, 0, 1, 1]


async def test_a_model_that_goes_on_failing_is_its_own_error() -> None:
    async def gone(prompt: list[int]) -> list[float | None]:
        raise RequestFailedError("gone", category="server")

    with pytest.raises(RequestFailedError, match="gone"):
        await logprobs_of(sequences(2), ScriptedClient(score=gone), FailureConfig(backoff_s=0.0))
