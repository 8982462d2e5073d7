"""From rewards to advantages: the published numbers, and what must hold for all others."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.credit.normalization import (
    CENTERED,
    SCALERL,
    SEED_GRPO,
    TRL_GRPO,
    VERL_GRPO,
    Normalization,
    group_advantages,
)
from reward_loop.errors import ConfigError, DataError

R = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0]
ONE_GROUP = ["g"] * 6
WAYS = [CENTERED, VERL_GRPO, TRL_GRPO, SEED_GRPO, SCALERL, Normalization("batch"), Normalization("batch", "batch")]


def test_centring_subtracts_the_groups_mean_and_is_the_default() -> None:
    expected = [0.583333, -0.416667, -0.416667, 0.583333, 0.083333, -0.416667]
    assert group_advantages(R, ONE_GROUP) == pytest.approx(expected, abs=1e-6)
    assert Normalization() == CENTERED == Normalization("group", "none")


@pytest.mark.parametrize(
    ("normalization", "expected"),
    [
        (VERL_GRPO, [1.186609, -0.847578]),  # ddof 1, eps 1e-6
        (TRL_GRPO, [1.186370]),  # ddof 1, eps 1e-4
        (SEED_GRPO, [1.299868]),  # ddof 0, eps 1e-8
    ],
)
def test_dividing_by_the_groups_std_gives_the_numbers_of_each_trainer(
    normalization: Normalization, expected: list[float]
) -> None:
    assert group_advantages(R, ONE_GROUP, normalization)[: len(expected)] == pytest.approx(expected, abs=1e-6)


def test_scalerl_subtracts_the_groups_mean_and_divides_by_the_std_of_all_advantages() -> None:
    # Centred: [1, -1] and [.25, -.25]; their population std is sqrt((1 + 1 + 1/16 + 1/16) / 4).
    std = math.sqrt(2.125 / 4)
    advantages = group_advantages([3.0, 1.0, 0.75, 0.25], ["a", "a", "b", "b"], SCALERL)
    assert advantages == pytest.approx([1 / std, -1 / std, 0.25 / std, -0.25 / std], abs=1e-7)


def test_a_group_of_one_has_nothing_to_compare_with() -> None:
    for normalization in (CENTERED, VERL_GRPO, SCALERL):
        assert group_advantages([5.0, 1.0, 3.0], ["alone", "b", "b"], normalization)[0] == 0.0


def test_nor_has_a_group_of_one_whose_steps_differ() -> None:
    assert CENTERED.advantages([[1.0, 3.0]], ["alone"]) == [[0.0, 0.0]]


def test_small_rewards_are_not_lost_beside_large_ones_in_any_order() -> None:
    for rewards in ([1e16, 1.0, -1e16], [1.0, 1e16, -1e16], [1e16, -1e16, 1.0]):
        assert group_advantages(rewards, ["g"] * 3)[rewards.index(1.0)] == pytest.approx(2 / 3)


def test_no_reward_is_no_zero() -> None:
    assert group_advantages([1.0, None, 0.0], ["g"] * 3) == [0.5, 0.0, -0.5]
    assert group_advantages([1.0, 0.0, 0.0], ["g"] * 3) != [0.5, 0.0, -0.5]


def test_without_centring_rewards_stay_as_they_are() -> None:
    assert group_advantages([1.0, None, -2.0], [None] * 3, Normalization("none")) == [1.0, 0.0, -2.0]


def test_the_batch_can_be_the_one_group() -> None:
    assert group_advantages([3.0, 1.0], ["a", "b"], Normalization("batch")) == [1.0, -1.0]


@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("scale", ["group", "batch"])
def test_equal_rewards_are_no_noise(scale: Any, eps: float) -> None:
    assert group_advantages([0.1] * 3, ["g"] * 3, Normalization(scale=scale, eps=eps)) == [0.0] * 3


def test_each_sample_weighs_the_same_however_many_steps_it_has() -> None:
    # By steps the mean would be .75; by samples it is .5 (bug 6 of the seeds).
    samples = [[1.0, 1.0, 1.0], [0.0]]
    assert CENTERED.advantages(samples, ["g", "g"]) == [[0.5] * 3, [-0.5]]
    assert Normalization(scale="group", ddof=0, eps=0.0).advantages(samples, ["g", "g"]) == [[1.0] * 3, [-1.0]]


def test_one_step_per_sample_is_the_same_as_one_number() -> None:
    for way in WAYS:
        assert [[one] for one in group_advantages(R, ONE_GROUP, way)] == way.advantages([[one] for one in R], ONE_GROUP)


@pytest.mark.parametrize(
    "wrong",
    [
        {"center": "mean"},
        {"scale": "std"},
        {"ddof": 2},
        {"eps": -1.0},
        {"eps": math.nan},
        {"center": "none", "scale": "batch"},
        {"center": "batch", "scale": "group"},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Normalization(**wrong)


def test_every_sample_needs_a_group() -> None:
    with pytest.raises(DataError, match="2 samples have 1 groups"):
        group_advantages([1.0, 2.0], ["g"])


number = st.floats(-1e6, 1e6, width=32)
batches = st.lists(st.tuples(st.none() | number, st.sampled_from("abc")), max_size=12)


@given(batches, st.sampled_from(WAYS))
@settings(max_examples=60)
def test_the_advantages_of_a_group_sum_to_zero(batch: list[tuple[float | None, str]], way: Normalization) -> None:
    sums: defaultdict[str, float] = defaultdict(float)
    advantages = group_advantages([reward for reward, _ in batch], [group for _, group in batch], way)
    for (_, group), advantage in zip(batch, advantages, strict=True):
        sums[group if way.center == "group" else ""] += advantage
    largest = max([1.0, *map(abs, advantages)])
    assert all(abs(total) <= 1e-9 * largest for total in sums.values())


@given(batches, st.sampled_from(WAYS), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_of_the_samples_changes_nothing(
    batch: list[tuple[float | None, str]], way: Normalization, chance: random.Random
) -> None:
    order = chance.sample(range(len(batch)), len(batch))
    advantages = group_advantages([reward for reward, _ in batch], [group for _, group in batch], way)
    shuffled = group_advantages([batch[row][0] for row in order], [batch[row][1] for row in order], way)
    assert shuffled == [advantages[row] for row in order]  # to the last bit


@given(batches, st.sampled_from(WAYS))
@settings(max_examples=60)
def test_samples_without_a_reward_change_nothing(batch: list[tuple[float | None, str]], way: Normalization) -> None:
    advantages = group_advantages([reward for reward, _ in batch], [group for _, group in batch], way)
    scored = [(reward, group) for reward, group in batch if reward is not None]
    alone = iter(group_advantages([reward for reward, _ in scored], [group for _, group in scored], way))
    assert advantages == [0.0 if reward is None else next(alone) for reward, _ in batch]
