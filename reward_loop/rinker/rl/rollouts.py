"""Playing one group: its episodes side by side, each scored as soon as it has ended.

Invariants: environments are used once: a group of which one raises is played again as a whole, in new ones; rewards that could
not be computed are computed again without playing; nothing is tried more often than the settings say; no error of a cleanup costs
a group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from reward_loop.errors import RequestFailedError, TrainingError
from reward_loop.rinker.rendering import TokenCompleter
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.policy import Policy
from reward_loop.rinker.rl.rewards import EpisodeReward, EpisodeScorer
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import Env, Metrics, Trajectory, TrajectoryGroup, Transition
from reward_loop.rinker.rl.work_plan import GroupTask

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EnvironmentFailed(TrainingError):
    """An environment, or the reward of a group, raised or took too long; the message says what."""


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """A group that was played: by the policy that had made `policy_step` steps."""

    task: GroupTask
    group: TrajectoryGroup | None
    """None: it failed as often as it was tried, and is left out."""
    policy_step: int
    attempts: int = 1
    tags: Sequence[str] = ()
    failed_rewards: int = 0
    """Episodes whose reward could not be computed, whatever they are worth then."""


@dataclass(frozen=True, slots=True)
class GroupPlayer:
    """Plays groups."""

    scorer: EpisodeScorer
    failures: FailureConfig
    admission: Admission
    clock: StageClock

    async def play(self, task: GroupTask, newest: Callable[[], Policy]) -> PlayedGroup:
        """Return the group with its rewards, by the policy that is `newest` once there is room for it.

        Raises what `on_group_failure: raise` lets through.
        """
        attempt = 0
        while attempt < self.failures.group_attempts:
            attempt += 1
            try:
                return await self._play(task, newest, attempt)
            except EnvironmentFailed as error:
                if attempt < self.failures.group_attempts:
                    logger.warning("group=%s attempt=%d failed, and is played again: %s", task.id, attempt, error)
                    continue
                if self.failures.on_group_failure == "raise":
                    raise
                logger.warning("group=%s failed %d times, and is left out: %s", task.id, attempt, error)
            except RequestFailedError as error:  # tried often enough already
                if self.failures.on_group_failure == "raise":
                    raise
                logger.warning("group=%s could not be sampled, and is left out: %s", task.id, error)
                break
            finally:
                await self._clean_up(task)
        return PlayedGroup(task, None, newest().step, attempt, tuple(task.builder.logging_tags()))

    async def _clean_up(self, task: GroupTask) -> None:
        try:
            await self._ended(task.builder.cleanup, "cleanup", task)
        except (EnvironmentFailed, RequestFailedError) as error:
            logger.warning("group=%s was not cleaned up: %s", task.id, error)

    async def _play(self, task: GroupTask, newest: Callable[[], Policy], attempt: int) -> PlayedGroup:
        envs = await self._ended(task.builder.make_envs, "make_envs", task)
        if not envs:
            raise TrainingError(f"the builder of group {task.id} made no environments")
        policy, trajectories, rewards = await self._episodes(task, newest, attempt, envs)
        with self.clock.at("scoring"):
            ends = await self._group_rewards(task, trajectories, envs)
            if self.scorer.whole_groups:
                rewards = await self.scorer.score(_name(task), list(zip(envs, trajectories, strict=True)))
        group = _with_rewards(trajectories, ends, rewards)
        failed = sum(reward.failed for reward in rewards)
        return PlayedGroup(task, group, policy.step, attempt, tuple(task.builder.logging_tags()), failed)

    async def _episodes(
        self, task: GroupTask, newest: Callable[[], Policy], attempt: int, envs: Sequence[Env]
    ) -> tuple[Policy, list[Trajectory], list[EpisodeReward]]:
        """Play all episodes at once; each is scored when it ends, while the others go on and other groups may begin."""
        name = _name(task)
        scoring: dict[int, asyncio.Task[list[EpisodeReward]]] = {}

        async def episode(policy: Policy, place: int, env: Env) -> Trajectory:
            completer = policy.completer(*task.id, place, attempt)
            with self.clock.at("sampling"):
                trajectory = await self._episode(completer, env, task)
            if not self.scorer.whole_groups:
                scoring[place] = tasks.create_task(self._score(name, env, trajectory))
            return trajectory

        try:
            async with asyncio.TaskGroup() as tasks:  # noqa: SIM117 - scoring goes on when there is room for other groups
                async with self.admission.of(len(envs)), asyncio.TaskGroup() as playing:
                    policy = newest()
                    played = [playing.create_task(episode(policy, place, env)) for place, env in enumerate(envs)]
        except BaseExceptionGroup as failed:
            first = first_of(failed)
            raise first from first.__cause__
        rewards = [scoring[place].result()[0] if place in scoring else EpisodeReward() for place in range(len(envs))]
        return policy, [task.result() for task in played], rewards

    async def _score(self, group: str, env: Env, trajectory: Trajectory) -> list[EpisodeReward]:
        with self.clock.at("scoring"):
            return await self.scorer.score(group, [(env, trajectory)])

    async def _episode(self, completer: TokenCompleter, env: Env, task: GroupTask) -> Trajectory:
        """Let a policy act in an environment until it is done."""
        observation, stop = await self._ended(env.initial_observation, "initial_observation", task)
        transitions: list[Transition] = []
        while True:
            answer = await completer(observation, stop)
            result = await self._ended(partial(env.step, answer.tokens, extra=answer), "step", task)
            transitions.append(Transition(observation, answer, result.reward, result.episode_done, result.metrics, result.logs))
            observation, stop = result.next_observation, result.next_stop_condition
            if result.episode_done:
                return Trajectory(transitions, observation)

    async def _group_rewards(
        self, task: GroupTask, trajectories: Sequence[Trajectory], envs: Sequence[Env]
    ) -> Sequence[tuple[float | None, Metrics]]:
        attempts = self.failures.reward_attempts
        for attempt in range(1, attempts + 1):
            try:
                ends = await self._ended(lambda: task.builder.compute_group_rewards(trajectories, envs), "group rewards", task)
            except EnvironmentFailed as error:
                if attempt == attempts:
                    raise
                logger.warning("group=%s attempt=%d: its rewards failed, and are computed again: %s", task.id, attempt, error)
                await asyncio.sleep(self.failures.backoff_s * 2 ** (attempt - 1))
            else:
                if len(ends) != len(trajectories):
                    raise TrainingError(f"group {task.id} has {len(trajectories)} episodes and got {len(ends)} rewards")
                return ends
        raise AssertionError  # attempts is at least 1

    async def _ended(self, call: Callable[[], Awaitable[T]], what: str, task: GroupTask) -> T:
        """Await what somebody else wrote, for so long at most."""
        try:
            async with asyncio.timeout(self.failures.env_timeout_s):
                return await call()
        except TimeoutError as error:
            limit = self.failures.env_timeout_s
            raise EnvironmentFailed(f"{what} took longer than env_timeout_s={limit:g}", f"group {task.id}") from error
        except (EnvironmentFailed, RequestFailedError):  # the latter has been tried often enough
            raise
        except Exception as error:  # whatever an environment's author lets it raise
            raise EnvironmentFailed(f"{what} raised {type(error).__name__}: {error}", f"group {task.id}") from error


def first_of(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group of errors, which may hold groups."""
    first = failed.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def _name(task: GroupTask) -> str:
    batch, place = task.id
    return f"{batch}-{place}"


def _with_rewards(
    trajectories: Sequence[Trajectory], ends: Sequence[tuple[float | None, Metrics]], rewards: Sequence[EpisodeReward]
) -> TrajectoryGroup:
    finals: list[float | None] = []
    metrics: list[Metrics] = []
    played: list[Trajectory] = []
    for trajectory, (end, end_metrics), reward in zip(trajectories, ends, rewards, strict=True):
        finals.append(reward.value if reward.replaces else _sum(end, reward.value))
        metrics.append({**end_metrics, **reward.metrics})
        played.append(_without_rewards(trajectory) if reward.replaces else trajectory)
    return TrajectoryGroup(played, finals, metrics)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _without_rewards(trajectory: Trajectory) -> Trajectory:
    """Return an episode whose steps earn nothing, for another reward stands in their place."""
    steps = [Transition(s.ob, s.ac, 0.0, s.episode_done, s.metrics, s.logs) for s in trajectory.transitions]
    return Trajectory(steps, trajectory.final_ob)
