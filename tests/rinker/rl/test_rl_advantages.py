"""Advantages and their weights: the reference numbers, and the rule for every way of averaging."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.credit.aggregation import Aggregation, aggregate
from reward_loop.credit.normalization import SEED_GRPO, TRL_GRPO, VERL_GRPO, Normalization
from reward_loop.rinker.rl.advantages import compute_advantages, is_constant, remove_constant_reward_groups, sequence_factors
from reward_loop.rinker.rl.types import Trajectory, TrajectoryGroup
from reward_loop.rinker.types import ModelInput

R = [1.0, 0.0, 0.0, 1.0, 0.5, 0.0]


def group_of(*rewards: float | None) -> TrajectoryGroup:
    empty = Trajectory([], ModelInput.empty())
    return TrajectoryGroup([empty] * len(rewards), rewards, [{}] * len(rewards))


def test_the_mean_of_the_group_is_subtracted_and_nothing_else() -> None:
    expected = [0.583333, -0.416667, -0.416667, 0.583333, 0.083333, -0.416667]
    assert compute_advantages([R])[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("normalization", "expected"),
    [(VERL_GRPO, [1.186609, -0.847578]), (TRL_GRPO, [1.186370]), (SEED_GRPO, [1.299868])],
)
def test_a_std_is_named(normalization: Normalization, expected: list[float]) -> None:
    assert compute_advantages([R], normalization)[0][: len(expected)] == pytest.approx(expected, abs=1e-6)


def test_groups_are_apart_and_a_group_of_one_has_no_advantage() -> None:
    assert compute_advantages([[2.0, 0.0], [7.0], [1.0, 1.0]]) == [[1.0, -1.0], [0.0], [0.0, 0.0]]


def test_an_episode_without_reward_is_in_no_mean_and_has_no_advantage() -> None:
    assert compute_advantages([[1.0, None, 0.0], [None, None]]) == [[0.5, 0.0, -0.5], [0.0, 0.0]]


def test_groups_that_teach_nothing_are_removed_but_one_stays() -> None:
    same, mixed, unknown = group_of(1.0, 1.0, None), group_of(1.0, 0.0), group_of(None, None)
    assert remove_constant_reward_groups([same, mixed, unknown]) == [mixed]
    assert remove_constant_reward_groups([same, unknown]) == [same]
    assert remove_constant_reward_groups([]) == []
    assert is_constant([0.5])
    assert not is_constant([None, 0.5, 0.25])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("token-mean", 3.0),
        ("token-sum", 15.0),
        ("seq-mean-token-sum", 7.5),
        ("seq-mean-token-mean", 3.25),
        ("seq-mean-token-sum-norm", 2.5),
    ],
)
def test_a_sum_with_these_factors_is_the_average_of_that_name(how: Aggregation, expected: float) -> None:
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0]]
    factors = sequence_factors([3, 2], how)
    total = sum(factor * value for factor, row in zip(factors, rows, strict=True) for value in row)
    assert total == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.lists(st.floats(-5, 5), max_size=4), min_size=1, max_size=4), st.sampled_from(get_args(Aggregation)))
def test_the_factors_agree_with_the_projects_aggregation(rows: list[list[float]], how: Aggregation) -> None:
    width = max(map(len, rows)) or 1
    values = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    factors = sequence_factors(list(map(len, rows)), how)
    total = sum(factor * value for factor, row in zip(factors, rows, strict=True) for value in row)
    assert total == pytest.approx(aggregate(values, mask, how).item(), abs=1e-9)


def test_the_constant_divisor_is_dr_grpos() -> None:
    assert sequence_factors([3, 2], "seq-mean-token-sum-norm", 10) == [0.05, 0.05]
    assert np.isfinite(sequence_factors([0, 0], "seq-mean-token-mean")).all()
