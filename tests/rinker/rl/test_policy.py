"""Calls of the sampler: their seeds, retries and deadlines."""

from __future__ import annotations

import asyncio

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import ModelInput, SamplingParams
from tests.rinker.rl.scripted import ScriptedClient, policy_of

PROMPT = ModelInput.from_ints([10, 1, 2, 3, 11])


def failing(times: int, category: str) -> ScriptedClient:
    left = [times]

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        left[0] -= 1
        if left[0] >= 0:
            raise RequestFailedError("the sampler is gone", category=category)
        return [1]

    return ScriptedClient(answer)


async def test_an_episode_draws_with_seeds_of_its_own_which_a_resumed_run_draws_with_again() -> None:
    client = ScriptedClient()
    for key in ((0, 1), (0, 2), (0, 1)):
        completer = policy_of(client).completer(*key)
        await completer(PROMPT, [])
        await completer(PROMPT, [])
    seeds = [params.seed for _, params in client.calls]
    assert len(set(seeds)) == 4
    assert seeds[:2] == seeds[4:]
    await policy_of(client, seed=1).completer(0, 1)(PROMPT, [])
    assert client.calls[-1][1].seed not in seeds


async def test_a_sampler_that_failed_is_asked_again() -> None:
    client = failing(2, "server")
    answer = await policy_of(client, sample_attempts=3).completer(0)(PROMPT, [])
    assert (answer.tokens, answer.logprobs, len(client.calls)) == ([1], [-1.0], 3)
    assert len({params.seed for _, params in client.calls}) == 1  # the same answer, not another


async def test_it_is_not_asked_more_often_than_allowed() -> None:
    client = failing(9, "unknown")
    with pytest.raises(RequestFailedError, match="the sampler is gone"):
        await policy_of(client, sample_attempts=2).completer(0)(PROMPT, [])
    assert len(client.calls) == 2


async def test_a_call_that_is_wrong_is_not_made_again() -> None:
    client = failing(9, "user")
    with pytest.raises(RequestFailedError):
        await policy_of(client, sample_attempts=5).completer(0)(PROMPT, [])
    assert len(client.calls) == 1


async def test_a_call_that_hangs_is_cancelled_and_made_again() -> None:
    hanging = [True]

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        if hanging.pop():
            hanging.append(False)
            await asyncio.Event().wait()
        return [7]

    client = ScriptedClient(answer)
    drawn = await policy_of(client, sample_timeout_s=0.02).completer(0)(PROMPT, [])
    assert (drawn.tokens, client.cancelled) == ([7], 1)


async def test_a_sampler_that_goes_on_hanging_is_an_error_that_names_the_limit() -> None:
    async def hang(prompt: list[int], params: SamplingParams) -> list[int]:
        return await asyncio.Future()

    client = ScriptedClient(hang)
    with pytest.raises(RequestFailedError, match=r"longer than sample_timeout_s=0\.02; raise it") as failed:
        await policy_of(client, sample_attempts=2, sample_timeout_s=0.02).completer(0)(PROMPT, [])
    assert (failed.value.category, len(client.calls)) == ("server", 2)
