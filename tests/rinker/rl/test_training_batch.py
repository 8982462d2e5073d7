"""What of a group reaches the learner: shaped, centred, weighed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.training_batch import training_batch
from reward_loop.rinker.rl.types import Trajectory, TrajectoryGroup, Transition
from reward_loop.rinker.types import ModelInput
from tests.rinker.rl.copy_task import copy_config
from tests.rinker.rl.scripted import ScriptedClient


def config(**settings: Any) -> RLConfig:
    return copy_config(Path("unused"), "unused", **settings)


def group(*rewards: float | None, lengths: tuple[int, ...] = (), said: float = -1.0) -> TrajectoryGroup:
    sizes = lengths or (2,) * len(rewards)
    episodes = [
        Trajectory(
            [Transition(ModelInput.from_ints([1]), TokensWithLogprobs([5] * n, [said] * n), 0.0, True)], ModelInput.empty()
        )
        for n in sizes
    ]
    return TrajectoryGroup(episodes, rewards, [{}] * len(rewards))


async def advantages(*groups: TrajectoryGroup, **settings: Any) -> list[list[float]]:
    batch = await training_batch(groups, config(**settings))
    return [sequence.advantages.tolist() for sequence in batch.sequences]


async def test_every_action_token_gets_the_centred_reward_of_its_episode() -> None:
    assert await advantages(group(1.0, 0.0), group(3.0)) == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]]


async def test_an_episode_without_reward_is_not_sent_at_all() -> None:
    assert await advantages(group(1.0, None, 0.0)) == [[0.5, 0.5], [-0.5, -0.5]]
    assert await advantages(group(None, None)) == []


async def test_groups_that_teach_nothing_are_left_out_on_request() -> None:
    assert len(await advantages(group(1.0, 1.0), group(1.0, 0.0))) == 4
    assert len(await advantages(group(1.0, 1.0), group(1.0, 0.0), remove_constant_reward_groups=True)) == 2


async def test_averages_are_factors_of_the_advantages() -> None:
    rows = await advantages(group(1.0, 0.0, lengths=(3, 1)), aggregation="token-mean")
    assert rows == [[0.125] * 3, [-0.125]]
    rows = await advantages(group(1.0, 0.0, lengths=(3, 1)), preset="dr_grpo", max_tokens=10)
    assert rows == [pytest.approx([0.025] * 3), pytest.approx([-0.025])]


async def test_long_answers_cost_what_dapo_says() -> None:
    # Limit 10, buffer 5: eight tokens are three into the buffer, which costs 3/5.
    rows = await advantages(group(1.0, 1.0, lengths=(8, 5)), max_tokens=10, overlong={"buffer_tokens": 5})
    assert rows[0] == pytest.approx([-0.3] * 8)
    assert rows[1] == pytest.approx([0.3] * 5)


async def test_of_many_turns_the_longest_counts_and_costs_the_factor_at_most() -> None:
    def turns(*lengths: int) -> Trajectory:
        steps = [
            Transition(ModelInput.from_ints([1]), TokensWithLogprobs([5] * n, [-1.0] * n), 0.0, episode_done=True)
            for n in lengths
        ]
        return Trajectory(steps, ModelInput.empty())

    episodes = TrajectoryGroup([turns(5, 5, 5), turns(4, 10, 3)], [1.0, 1.0], [{}, {}])
    rows = await advantages(episodes, max_tokens=10, overlong={"buffer_tokens": 5})
    assert rows == [pytest.approx([sign * 0.5] * n) for sign, n in ((1, 5), (1, 5), (1, 5), (-1, 4), (-1, 10), (-1, 3))]


async def test_distance_from_the_reference_costs_reward_before_centring() -> None:
    # The reference gives every token -2: d is 1 for each token that was drawn with -1, and there are 2 and 4 of them.
    batch = await training_batch([group(1.0, 1.0, lengths=(2, 4))], config(kl={"reward_coef": 0.1}), reference=ScriptedClient())
    assert batch.metrics == {"kl_policy_base": pytest.approx(1.0)}
    assert batch.sequences[0].advantages.tolist() == pytest.approx([0.1] * 2)
    assert batch.sequences[1].advantages.tolist() == pytest.approx([-0.1] * 4)


async def test_what_is_of_the_batch_is_of_all_its_updates() -> None:
    groups = [group(1.0, 0.0), group(9.0, 1.0)]
    scaled = config(advantage={"scale": "batch", "eps": 0.0, "ddof": 0})
    whole, halves = await training_batch(groups, scaled), await training_batch(groups, scaled, parts=2)
    assert [len(part) for part in halves.parts] == [2, 2]
    rows, cut = ([one.advantages.tolist() for one in batch.sequences] for batch in (whole, halves))
    assert cut == rows
    assert [row[0] for row in cut] == pytest.approx([one / 8.125**0.5 for one in (0.5, -0.5, 4.0, -4.0)])
    penalized = [group(0.0, said=-1.0), group(0.0, said=-2.0)]
    batch = await training_batch(penalized, config(kl={"token_coef": 2.0}), reference=ScriptedClient(), parts=2)
    assert [[one.advantages.tolist() for one in part] for part in batch.parts] == [[[-1.0, -1.0]], [[1.0, 1.0]]]
    assert batch.metrics == {"kl_policy_base": pytest.approx(0.5)}


async def test_losses_are_averaged_over_what_an_update_is_made_of() -> None:
    groups = [group(1.0, 0.0, lengths=(1, 1)), group(1.0, 0.0, lengths=(4, 4))]
    batch = await training_batch(groups, config(aggregation="token-mean"), parts=2)
    assert [[one.advantages.tolist() for one in part] for part in batch.parts] == [
        [[0.25], [-0.25]],
        [[0.0625] * 4, [-0.0625] * 4],
    ]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [2, 1]), (4, [2, 2])])
async def test_few_groups_make_fewer_updates(count: int, sizes: list[int]) -> None:
    batch = await training_batch([group(1.0)] * count, config(), parts=2)
    assert [len(part) for part in batch.parts] == sizes


async def test_distance_can_cost_each_token_its_own() -> None:
    groups = [group(0.0, said=-1.0), group(0.0, said=-2.0)]
    batch = await training_batch(groups, config(kl={"token_coef": 2.0}), reference=ScriptedClient())
    assert [one.advantages.tolist() for one in batch.sequences] == [[-1.0, -1.0], [1.0, 1.0]]
