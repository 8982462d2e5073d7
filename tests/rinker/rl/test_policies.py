"""The weights of a run's policies: the service keeps those that are sampled from, and no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.rollouts import EnvironmentFailed
from reward_loop.rinker.rl.types import Action, StepResult
from reward_loop.rinker.types import ModelInput
from tests.rinker.rl.copy_task import CopyDataset, CopyEnv
from tests.rinker.rl.runs import every_group_once, run, trained_groups
from tests.rinker.rl.without_models import PlayingBackend

STEPS = 6


@pytest.mark.parametrize("settings", [{}, {"stream": {"num_minibatches": 4}}, {"num_substeps": 2, "post_kl": True}])
async def test_on_policy_no_more_than_the_policy_and_the_next_are_kept(tmp_path: Path, settings: dict[str, Any]) -> None:
    backend = PlayingBackend()
    with ServiceClient(backend=backend) as service:
        test = CopyDataset(1, 2, 1)
        await run(tmp_path, "base", service=service, steps=STEPS, test=test, eval_every=1, **settings)
    assert (backend.samplers, backend.most_kept, backend.kept) == (STEPS + 1, 2, set())


async def test_a_policy_is_kept_for_a_group_that_is_still_played_with_it(tmp_path: Path) -> None:
    backend = PlayingBackend()
    slow: list[Sequence[int]] = []
    overtaken = asyncio.Event()

    class TwoTurns(CopyEnv):
        """Of the first group that is begun, the second turn waits until its policy is older than K = 2."""

        turns = 0

        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            self.turns += 1
            if self.turns == 2:
                return await super().step(action, extra=extra)
            if not slow:
                slow.append(self.digits)
                await overtaken.wait()
            if backend.samplers > 4:
                overtaken.set()
            return StepResult(0.0, False, ModelInput.from_ints([1, 2]), list[int]())

    settings: dict[str, Any] = {"max_steps_off_policy": 2, "max_rollouts_in_flight": 6}
    with ServiceClient(backend=backend) as service:
        async with asyncio.timeout(20):
            watching = await run(tmp_path, "base", service=service, steps=STEPS, make=TwoTurns, **settings)
    assert trained_groups(tmp_path) == every_group_once(STEPS)
    assert sum(watching.series("async/discarded_groups")) >= 1
    assert backend.kept == set()


async def test_a_service_that_takes_nothing_back_is_asked_once_and_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Keeping(PlayingBackend):
        async def close_sampling_session(self, session_id: str) -> None:
            self.calls.append(("close_sampling_session", session_id))
            raise RequestFailedError("there is no such path", category="user")

    backend = Keeping()
    with ServiceClient(backend=backend) as service, caplog.at_level(logging.WARNING):
        await run(tmp_path, "base", service=service)
    assert backend.asked("close_sampling_session") == [("close_sampling_session", "sampler-1")]
    assert caplog.messages == ["the policy of step=0 is not given back: there is no such path"]


async def test_a_service_that_is_lost_is_asked_for_nothing_more(tmp_path: Path) -> None:
    backend = PlayingBackend()
    backend.failure = RequestFailedError("the server is gone", category="server")
    with ServiceClient(backend=backend) as service, pytest.raises(RequestFailedError, match="the server is gone"):
        await run(tmp_path, "base", service=service)
    assert backend.asked("close_sampling_session") == []


async def test_a_run_that_fails_otherwise_gives_its_policies_back(tmp_path: Path) -> None:
    class Broken(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            raise OSError("the disk is full")

    backend = PlayingBackend()
    with ServiceClient(backend=backend) as service, pytest.raises(EnvironmentFailed, match="the disk is full"):
        await run(tmp_path, "base", service=service, make=Broken)
    assert (backend.samplers, backend.kept) == (1, set())
