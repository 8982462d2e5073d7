"""Playing a group: episodes side by side, rewards as they end, and what becomes of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reward_loop.errors import RequestFailedError, SandboxError, ServerUnavailable, TrainingError
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.rewards import EpisodeReward, EpisodeScorer, NoScorer
from reward_loop.rinker.rl.rollouts import EnvironmentFailed, GroupPlayer, PlayedGroup
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import Action, Env, Metrics, StepResult, Trajectory
from reward_loop.rinker.rl.work_plan import GroupTask
from reward_loop.rinker.types import ModelInput, SamplingParams
from tests.rinker.rl.copy_task import CopyEnv, CopyGroup
from tests.rinker.rl.scripted import ScriptedClient, policy_of

DIGITS = [1, 2, 3]


def player(scorer: EpisodeScorer | None = None, limit: int = 64, **failures: Any) -> GroupPlayer:
    settings = FailureConfig.model_validate({"backoff_s": 0.0, **failures})
    return GroupPlayer(scorer or NoScorer(), settings, Admission(limit), StageClock())


async def play(group: CopyGroup, client: ScriptedClient | None = None, by: GroupPlayer | None = None) -> PlayedGroup:
    policy = policy_of(client or ScriptedClient())
    return await (by or player()).play(GroupTask((0, 0), group), lambda: policy)


def rewards(played: PlayedGroup) -> Sequence[float | None]:
    assert played.group is not None
    return played.group.get_total_rewards()


class Broken(CopyEnv):
    """Raises, or hangs, in as many of its steps as `left` says."""

    def __init__(self, digits: Sequence[int], left: list[int], *, hang: bool = False) -> None:
        super().__init__(digits)
        self.left, self.hang = left, hang

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        self.left[0] -= 1
        if self.left[0] >= 0:
            if self.hang:
                await asyncio.Event().wait()
            raise KeyError("state")
        return await super().step(action, extra=extra)


def broken(times: int, *, hang: bool = False, size: int = 2) -> CopyGroup:
    left = [times]
    return CopyGroup(DIGITS, size, lambda digits: Broken(digits, left, hang=hang))


async def test_episodes_run_side_by_side_and_earn_what_their_environment_says() -> None:
    client = ScriptedClient()
    played = await play(CopyGroup(DIGITS, 4), client)
    assert rewards(played) == [1.0] * 4
    assert client.most_running == 4
    assert (played.policy_step, played.attempts, played.tags) == (0, 1, ("copy",))


class TwoTurns(CopyEnv):
    """Asks twice."""

    turns = 0

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        self.turns += 1
        seen = ModelInput.from_ints([10, *self.digits, 11, *action, 11])
        return StepResult(0.5, self.turns == 2, seen, [], {"turn": float(self.turns)})


async def test_an_episode_goes_on_until_its_environment_is_done() -> None:
    played = await play(CopyGroup(DIGITS, 1, TwoTurns))
    assert rewards(played) == [1.0]
    assert played.group is not None
    [trajectory] = played.group.trajectories_G
    assert [step.ob.length for step in trajectory.transitions] == [5, 9]
    assert [step.episode_done for step in trajectory.transitions] == [False, True]


async def test_a_group_of_which_one_raises_is_played_again_in_new_environments() -> None:
    made: list[Env] = []

    class Counted(CopyGroup):
        async def make_envs(self) -> Sequence[Env]:
            made.extend(envs := await super().make_envs())
            return envs

    left = [1]
    played = await play(Counted(DIGITS, 2, lambda digits: Broken(digits, left)))
    assert (rewards(played), played.attempts) == ([1.0, 1.0], 2)
    assert len(set(map(id, made))) == 4


async def test_a_group_that_goes_on_failing_ends_the_run_or_is_left_out() -> None:
    with pytest.raises(EnvironmentFailed, match=r"sample group \(0, 0\): step raised KeyError: 'state'"):
        await play(broken(9), by=player(group_attempts=3))
    played = await play(broken(9), by=player(on_group_failure="drop"))
    assert (played.group, played.attempts) == (None, 2)


async def test_an_environment_that_hangs_is_given_up_after_its_time() -> None:
    played = await play(broken(1, hang=True), by=player(env_timeout_s=0.02))
    assert (rewards(played), played.attempts) == ([1.0, 1.0], 2)
    with pytest.raises(EnvironmentFailed, match=r"step took longer than env_timeout_s=0\.02"):
        await play(broken(9, hang=True), by=player(env_timeout_s=0.02, group_attempts=1))


def raising(error: Exception) -> type[CopyEnv]:
    class Raising(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            raise error

    return Raising


async def test_an_error_of_the_project_makes_an_environment_fail_like_any_other() -> None:
    sandboxed = raising(SandboxError("the sandbox is gone"))
    with pytest.raises(EnvironmentFailed, match="step raised SandboxError: the sandbox is gone"):
        await play(CopyGroup(DIGITS, 1, sandboxed))
    played = await play(CopyGroup(DIGITS, 1, sandboxed), by=player(on_group_failure="drop"))
    assert (played.group, played.attempts) == (None, 2)


async def test_an_environment_whose_own_request_failed_is_not_played_again() -> None:
    asking = raising(RequestFailedError("gone", category="server"))
    with pytest.raises(RequestFailedError, match="gone"):
        await play(CopyGroup(DIGITS, 1, asking))
    played = await play(CopyGroup(DIGITS, 1, asking), by=player(on_group_failure="drop"))
    assert (played.group, played.attempts) == (None, 1)


async def test_a_sampler_that_is_gone_ends_the_run_or_costs_the_group() -> None:
    async def gone(prompt: list[int], params: SamplingParams) -> list[int]:
        raise RequestFailedError("gone", category="server")

    with pytest.raises(RequestFailedError, match="gone"):
        await play(CopyGroup(DIGITS, 2), ScriptedClient(gone))
    played = await play(CopyGroup(DIGITS, 2), ScriptedClient(gone), player(on_group_failure="drop"))
    assert played.group is None


async def test_a_sampler_that_hangs_costs_the_group_too() -> None:
    async def hang(prompt: list[int], params: SamplingParams) -> list[int]:
        return await asyncio.Future()

    policy = policy_of(ScriptedClient(hang), sample_timeout_s=0.01, sample_attempts=2)
    task = GroupTask((0, 0), CopyGroup(DIGITS, 2))
    assert (await player(on_group_failure="drop").play(task, lambda: policy)).group is None


class Judged(CopyGroup):
    """Earns a reward at its end, once it has failed as often as `left` says."""

    left = 0
    cleaned = 0
    error: Exception = ConnectionError("the judge")
    earns: Callable[[int], float | None] = staticmethod(float)

    async def compute_group_rewards(
        self, trajectory_group: Sequence[Trajectory], env_group: Sequence[Env]
    ) -> Sequence[tuple[float | None, Metrics]]:
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return [(self.earns(place), {"place": float(place)}) for place, _ in enumerate(trajectory_group)]

    async def cleanup(self) -> None:
        self.cleaned += 1


async def test_a_groups_rewards_are_added_and_computed_again_without_playing_again() -> None:
    client, group = ScriptedClient(), Judged(DIGITS, 2)
    group.left = 1
    played = await play(group, client)
    assert rewards(played) == [1.0, 2.0]
    assert (len(client.calls), group.cleaned) == (2, 1)
    assert played.group is not None
    assert played.group.metrics_G == [{"place": 0.0}, {"place": 1.0}]


async def test_rewards_that_failed_with_an_error_of_the_project_are_computed_again_too() -> None:
    client, group = ScriptedClient(), Judged(DIGITS, 2)
    group.left, group.error = 1, ServerUnavailable("the judge")
    assert rewards(await play(group, client)) == [1.0, 2.0]
    assert len(client.calls) == 2


@pytest.mark.parametrize(
    "error", [OSError("the disk"), SandboxError("the disk"), RequestFailedError("the disk", category="server")]
)
async def test_a_cleanup_that_fails_is_told_and_costs_nothing(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    class Untidy(CopyGroup):
        async def cleanup(self) -> None:
            raise error

    assert rewards(await play(Untidy(DIGITS, 2))) == [1.0, 1.0]
    [record] = caplog.records
    assert "the disk" in record.getMessage()
    with pytest.raises(EnvironmentFailed, match="step raised SandboxError: gone"):  # what failed first is what counts
        await play(Untidy(DIGITS, 2, raising(SandboxError("gone"))))


async def test_rewards_that_go_on_failing_make_the_group_fail() -> None:
    group = Judged(DIGITS, 2)
    group.left = 99
    with pytest.raises(EnvironmentFailed, match="group rewards raised ConnectionError: the judge"):
        await play(group)
    assert group.cleaned == 2


async def test_a_reward_that_can_not_be_given_is_none_and_never_0() -> None:
    group = Judged(DIGITS, 2)
    group.earns = lambda place: None if place else 0.5
    assert rewards(await play(group)) == [1.5, None]


async def test_a_wrong_number_of_rewards_is_an_error() -> None:
    class Short(CopyGroup):
        async def compute_group_rewards(
            self, trajectory_group: Sequence[Trajectory], env_group: Sequence[Env]
        ) -> Sequence[tuple[float | None, Metrics]]:
            return [(0.0, {})]

    with pytest.raises(TrainingError, match="has 2 episodes and got 1 rewards"):
        await play(Short(DIGITS, 2))
    with pytest.raises(TrainingError, match="made no environments"):
        await play(CopyGroup(DIGITS, 0))


class Scorer:
    """Scores an episode by its first token, and notes the order of what happens."""

    def __init__(self, *, whole_groups: bool = False, value: float | None = 5.0, replaces: bool = True) -> None:
        self.whole_groups, self.value, self.replaces = whole_groups, value, replaces
        self.scored: list[int] = []
        self.release = asyncio.Event()

    async def score(self, group: str, episodes: Sequence[tuple[Env, Trajectory]]) -> list[EpisodeReward]:
        self.scored.append(len(episodes))
        self.release.set()
        return [EpisodeReward(self.value, {"judge": 0.25}, self.replaces, self.value is None) for _ in episodes]


async def test_an_episode_is_scored_as_soon_as_it_ends_while_others_are_sampled() -> None:
    scorer = Scorer()
    first = [True]

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        if first.pop():
            first.append(False)
        else:
            first.append(False)
            await scorer.release.wait()  # the second episode ends after the first was scored, or never
        return prompt[1:-1]

    async with asyncio.timeout(5):
        played = await play(CopyGroup(DIGITS, 2), ScriptedClient(answer), player(scorer))
    assert scorer.scored == [1, 1]
    assert rewards(played) == [5.0, 5.0]


async def test_a_scorers_reward_stands_instead_of_the_environments_or_is_added() -> None:
    assert rewards(await play(CopyGroup(DIGITS, 1), by=player(Scorer()))) == [5.0]
    assert rewards(await play(CopyGroup(DIGITS, 1), by=player(Scorer(replaces=False)))) == [6.0]
    unscored = await play(CopyGroup(DIGITS, 2), by=player(Scorer(value=None)))
    assert (rewards(unscored), unscored.failed_rewards) == ([None, None], 2)
    assert unscored.group is not None
    assert unscored.group.metrics_G[0] == {"judge": 0.25}


async def test_a_scorer_of_groups_gets_the_group_as_one() -> None:
    scorer = Scorer(whole_groups=True)
    assert rewards(await play(CopyGroup(DIGITS, 3), by=player(scorer))) == [5.0] * 3
    assert scorer.scored == [3]


async def test_no_more_episodes_run_at_a_time_than_there_is_room_for_and_groups_come_in_whole() -> None:
    client = ScriptedClient()
    by = player(limit=4)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(6):
            tasks.create_task(play(CopyGroup(DIGITS, 2), client, by))
    assert (client.most_running, len(client.calls)) == (4, 12)
    alone = ScriptedClient()
    await play(CopyGroup(DIGITS, 9), alone, by)  # larger than the room: it comes in when nobody else is inside
    assert alone.most_running == 9
