"""A whole run on Ray whose sampler, learner and reward worker are killed ends as the same run in this process does."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reward_loop import RewardLoopManager
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import Learner
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.reward_loop_rewards import RewardLoopRewards
from reward_loop.rinker.rl.types import Action, StepResult
from reward_loop.rinker.runtime.reward_actors import on_ray
from reward_loop.rinker.runtime.settings import LearnerSettings, RecoverySettings, SamplerPoolSettings
from reward_loop.rinker.service.checkpoint_store import CheckpointStore
from reward_loop.rinker.service.training_service import TrainingService
from reward_loop.rinker.types import ModelSpec
from tests.processes import wait_until_gone
from tests.rinker.rl.copy_task import CopyEnv, write_model
from tests.rinker.rl.runs import STEPS, Watching, every_group_once, lines, run, trained_groups

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")

from reward_loop.rinker.runtime.ray_learner import RayLearner  # noqa: E402
from reward_loop.rinker.runtime.sampler_pool import SamplerPool  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

ENGINE = EngineSettings(device="cpu")


class Digits:
    """Turns answers into text."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))


def share_copied(solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """The share of the digits that were copied; kills its process once, where it is told to."""
    try:
        Path(extra_info["poison"]).unlink()
    except FileNotFoundError:
        said = solution_str.split()
        return sum(one == str(digit) for one, digit in zip(said, ground_truth, strict=False)) / len(ground_truth)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


class Poisoned(CopyEnv):
    """Tells the reward function where its poison is."""

    def __init__(self, digits: Sequence[int], poison: Path) -> None:
        super().__init__(digits)
        self._poison = poison

    def reward_columns(self) -> Mapping[str, Any]:
        return {**super().reward_columns(), "extra_info": {"poison": str(self._poison)}}


class Killing(Watching):
    """Kills the learner, and lets the reward worker be killed, between two steps."""

    def __init__(self, learners: list[RayLearner], poison: Path) -> None:
        super().__init__()
        self._learners, self._poison = learners, poison
        self.killed: list[int] = []
        self.last: list[int] = []
        """Processes of the learner that ends the run, and ends with it."""

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        super().on_step(step, metrics)
        if step == 0:
            self._poison.touch()
        if step == 1:
            self.killed.append(kill(self._learners[0].actors))
        if step == STEPS - 1:
            self.last = pids_of(self._learners[0].actors)


def kill(actors: list[Any]) -> int:
    """Kill the process of the first, and return which it was."""
    pid = pids_of(actors)[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def pids_of(actors: list[Any]) -> list[int]:
    """Return their processes."""
    pids: list[int] = ray.get([actor.pid.remote() for actor in actors])
    return pids


async def undisturbed(log_path: Path, model: str) -> Watching:
    with RewardLoopManager({}, compute_score=share_copied) as manager:
        service = ServiceClient(checkpoint_dir=log_path / "weights", engine=ENGINE)
        watching = await run(
            log_path,
            model,
            service=service,
            scorer=RewardLoopRewards(manager, Digits()),
            make=lambda digits: Poisoned(digits, log_path / "none"),
        )
        await asyncio.to_thread(service.close().result)
    return watching


async def test_every_group_is_trained_once_with_the_same_results(ray_cluster: None, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    poison, turns, made = tmp_path / "poison", itertools.count(), list[RayLearner]()
    pool = SamplerPool(None, SamplerPoolSettings(cpus=0, max_in_flight=1))
    recover = RecoverySettings(directory=str(tmp_path / "own"), every_steps=2)

    watching = Killing(made, poison)

    async def learner(spec: ModelSpec) -> Learner:
        made.append(await RayLearner.create(spec, ENGINE, LearnerSettings(cpus=0, recover=recover)))
        return made[-1]

    class Env(Poisoned):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            if next(turns) == 17:  # in the third step, of 8 episodes each: the calls behind this one are in flight, or wait
                watching.killed.append(await asyncio.to_thread(kill, pool.actors))
            return await super().step(action, extra=extra)

    with RewardLoopManager(on_ray({}, 1), compute_score=share_copied) as manager:
        service = ServiceClient(backend=TrainingService(learner, pool, CheckpointStore(tmp_path / "weights")))
        scorer = RewardLoopRewards(manager, Digits())
        await run(
            tmp_path / "ray", model, watching=watching, service=service, scorer=scorer, make=lambda digits: Env(digits, poison)
        )
        pids = [*pids_of(pool.actors), *watching.last]
        await asyncio.to_thread(service.close().result)
    wait_until_gone(pids)
    assert len({*watching.killed, *pids}) == 4

    expected = await undisturbed(tmp_path / "here", model)
    assert not poison.exists()
    assert watching.events == expected.events
    assert [line["step"] for line in lines(tmp_path / "ray", "metrics.jsonl")] == list(range(STEPS))
    assert trained_groups(tmp_path / "ray") == every_group_once()
    assert watching.series("reward/total") == expected.series("reward/total")
    for name in ("optim/loss", "optim/entropy"):
        assert watching.series(name) == pytest.approx(expected.series(name), abs=1e-4)
