"""Evaluation of a policy on environments: share that passed, mean reward, and what the environments measure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from reward_loop.errors import DataError
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.metrics import group_metrics
from reward_loop.rinker.rl.policy import Policy, SamplingClientLike, SamplingSettings
from reward_loop.rinker.rl.rollouts import GroupPlayer, PlayedGroup, first_of
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import RLDataset, TrajectoryGroup
from reward_loop.rinker.rl.work_plan import GroupTask


class Evaluator(Protocol):
    """Measures a policy."""

    async def __call__(self, sampling_client: SamplingClientLike) -> dict[str, float]:
        """Return metrics, whose names begin with what was evaluated. `sampling_client` may be closed once this has returned."""
        ...


class RLTestSetEvaluator:
    """Plays every group of a dataset once, by default greedily.

    Metrics: `test/pass_rate` (episodes that are "correct", or whose reward reaches `pass_reward`), `test/pass_at_k` (groups with
    such an episode), and those of training behind `test/`. DataError for a dataset without groups.
    """

    def __init__(self, dataset: RLDataset, player: GroupPlayer, config: RLConfig, name: str = "test") -> None:
        if not any(dataset.get_batch(batch) for batch in range(len(dataset))):
            raise DataError(f"the dataset of the evaluation {name!r} has no groups; give it some, or leave it out")
        self._dataset, self._config, self._name = dataset, config, name
        # Of its own: what is evaluated does not wait for what is trained, nor count as its time.
        self._player = replace(player, admission=Admission(config.max_rollouts_in_flight), clock=StageClock())

    async def __call__(self, sampling_client: SamplingClientLike) -> dict[str, float]:
        """See `Evaluator`."""
        config = self._config
        settings = SamplingSettings.of(config, config.evaluation.temperature)
        played = await play_all(self._dataset, self._player, Policy(sampling_client, 0, settings))
        metrics = {name: value for name, value in group_metrics(played, 0).items() if name.startswith(("env/", "rollouts/"))}
        metrics |= _passing([one.group for one in played if one.group is not None], config.evaluation.pass_reward)
        if "env/all/reward/total" in metrics:
            metrics["reward/total"] = metrics["env/all/reward/total"]
        return {f"{self._name}/{name}": value for name, value in metrics.items()}


async def play_all(dataset: RLDataset, player: GroupPlayer, policy: Policy) -> list[PlayedGroup]:
    """Play every group of a dataset once, as many at a time as the player has room for."""
    ids = [(batch, place, one) for batch in range(len(dataset)) for place, one in enumerate(dataset.get_batch(batch))]
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(player.play(GroupTask((batch, place), builder), lambda: policy))
                for batch, place, builder in ids
            ]
    except BaseExceptionGroup as failed:
        first = first_of(failed)
        raise first from first.__cause__
    return [task.result() for task in running]


def _passing(groups: Sequence[TrajectoryGroup], pass_reward: float) -> dict[str, float]:
    passed = [_passed(group, pass_reward) for group in groups]
    episodes = sum(map(len, passed))
    if not episodes:
        return {}
    return {
        "pass_rate": sum(map(sum, passed)) / episodes,
        "pass_at_k": sum(map(any, passed)) / len(passed),
    }


def _passed(group: TrajectoryGroup, pass_reward: float) -> list[bool]:
    """Return which episodes passed; one without a reward and without "correct" did not."""
    passed: list[bool] = []
    for trajectory, reward in zip(group.trajectories_G, group.get_total_rewards(), strict=True):
        correct = [step.metrics["correct"] for step in trajectory.transitions if "correct" in step.metrics]
        passed.append(correct[-1] > 0 if correct else reward is not None and reward >= pass_reward)
    return passed
