"""Groups that are played in the background: which policy plays them, how old they may be, and how the run ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.pipeline import RolloutPipeline
from reward_loop.rinker.rl.rewards import NoScorer
from reward_loop.rinker.rl.rollouts import EnvironmentFailed, GroupPlayer
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import Action, StepResult
from reward_loop.rinker.rl.work_plan import WorkPlan
from reward_loop.rinker.types import SamplingParams
from tests.rinker.rl.copy_task import CopyDataset, CopyEnv
from tests.rinker.rl.scripted import ScriptedClient, policy_of


def pipeline(client: ScriptedClient, data: CopyDataset, *, ahead: int = 0, limit: int = 64) -> tuple[RolloutPipeline, WorkPlan]:
    failures = FailureConfig.model_validate({"backoff_s": 0.0, "group_attempts": 1})
    player = GroupPlayer(NoScorer(), failures, Admission(limit), StageClock())
    plan = WorkPlan(data, len(data), max_steps_off_policy=ahead)
    return RolloutPipeline(plan, player, policy_of(client), max_steps_off_policy=ahead), plan


async def test_on_policy_every_group_is_played_by_the_policy_of_its_step() -> None:
    client = ScriptedClient()
    background, plan = pipeline(client, CopyDataset(3, 2, 1))
    async with asyncio.timeout(5), background.running():
        for step in range(3):
            played = [await background.next_group() for _ in range(2)]
            assert {one.policy_step for one in played} == {step}
            assert sorted(one.task.id for one in played) == [(step, 0), (step, 1)]
            for one in played:
                plan.trained(one.task.id)
            background.publish(policy_of(client, step + 1))
    assert len(client.calls) == 6


async def test_running_ahead_plays_the_next_batch_while_nobody_asks() -> None:
    client = ScriptedClient()
    background, _ = pipeline(client, CopyDataset(4, 1, 1), ahead=2)
    async with asyncio.timeout(5), background.running():
        first = await background.next_group()
        await client.until(lambda: len(client.calls) == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(client.calls) == 3  # batches 0, 1 and 2, and not 3
        background.publish(policy_of(client, 1))
        rest = [await background.next_group() for _ in range(3)]
    assert [one.policy_step for one in [first, *rest]] == [0, 0, 0, 1]


async def test_what_has_become_too_old_is_discarded_with_a_warning_and_sampled_again(caplog: pytest.LogCaptureFixture) -> None:
    release = asyncio.Event()
    slow = [True]

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        if slow.pop():
            slow.append(False)
            await release.wait()
        else:
            slow.append(False)
        return prompt[1:-1]

    client = ScriptedClient(answer)
    background, plan = pipeline(client, CopyDataset(3, 1, 1), ahead=1)
    async with asyncio.timeout(5), background.running():
        with caplog.at_level(logging.WARNING):
            for step in (1, 2):
                plan.trained((await background.next_group()).task.id)
                background.publish(policy_of(client, step))
            release.set()  # group (0, 0) ends now: its policy has made 0 steps, the newest 2
            last = await background.next_group()
    assert (last.task.id, last.policy_step, background.discarded) == ((0, 0), 2, 1)
    assert "group=(0, 0) is discarded and sampled again: its policy is 2 steps old, and max_steps_off_policy=1" in caplog.text


async def test_a_group_that_waits_for_room_is_played_by_the_newest_policy() -> None:
    release = asyncio.Event()

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        await release.wait()
        return prompt[1:-1]

    client = ScriptedClient(answer)
    background, _ = pipeline(client, CopyDataset(2, 1, 1), ahead=1, limit=1)
    async with asyncio.timeout(5), background.running():
        await client.until(lambda: client.running == 1)
        background.publish(policy_of(client, 1))
        release.set()
        played = [await background.next_group() for _ in range(2)]
    assert [one.policy_step for one in played] == [0, 1]


async def test_an_error_that_ends_the_run_reaches_whoever_waits_and_ends_the_rest() -> None:
    class Failing(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            raise OSError("the disk is full")

    client = ScriptedClient()
    background, _ = pipeline(client, CopyDataset(1, 1, 2, Failing))
    with pytest.raises(EnvironmentFailed, match="OSError: the disk is full"):
        async with asyncio.timeout(5), background.running():
            await background.next_group()


async def test_nothing_goes_on_behind_it() -> None:
    async def never(prompt: list[int], params: SamplingParams) -> list[int]:
        await asyncio.Event().wait()
        return []

    client = ScriptedClient(never)
    background, _ = pipeline(client, CopyDataset(1, 2, 1))

    async def leave() -> Sequence[Any]:
        await client.until(lambda: client.running == 2)
        raise ValueError("the loop failed")

    with pytest.raises(ValueError, match="the loop failed"):
        async with asyncio.timeout(5), background.running():
            await leave()
    assert (client.running, client.cancelled) == (0, 2)
