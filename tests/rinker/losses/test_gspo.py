"""GSPO: one ratio for a whole sequence, and each token's own gradient."""

from __future__ import annotations

import math

import pytest
import torch

from reward_loop.rinker.losses.gspo import gspo
from tests.rinker.losses.vectors import ADVANTAGES, NOW, SAMPLED, number, value_and_gradient

ALL = torch.ones(1, 3, dtype=torch.float64)
WIDE = (number(0.0), number(100.0))


def test_every_token_has_the_geometric_mean_of_the_ratios() -> None:
    # Log-ratios .5, -.5, 0: their mean is 0 and the ratio 1.
    value, slope = value_and_gradient(lambda lp: gspo(lp, SAMPLED, ADVANTAGES, ALL, *WIDE))
    assert value == pytest.approx(-2.5, abs=1e-6)
    assert slope == pytest.approx([-1.0, 0.5, -2.0], abs=1e-6)


def test_only_the_marked_tokens_make_the_ratio() -> None:
    marked = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    ratio = math.exp(0.25)  # of .5 and 0
    value, slope = value_and_gradient(lambda lp: gspo(lp, SAMPLED, ADVANTAGES, marked, *WIDE))
    assert value == pytest.approx(-2.5 * ratio, abs=1e-9)
    assert slope == pytest.approx([-ratio, 0.5 * ratio, -2 * ratio], abs=1e-9)


def test_of_one_token_it_is_ppo_and_its_gradient_that_of_importance_sampling() -> None:
    sampled, advantage = number(-1.5).reshape(1, 1), number(1.0).reshape(1, 1)
    _, slope = value_and_gradient(lambda lp: gspo(lp, sampled, advantage, advantage, *WIDE), (-1.0,))
    assert slope == pytest.approx([-math.exp(0.5)], abs=1e-9)


def test_a_sequence_is_clipped_as_a_whole() -> None:
    marked = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)  # a ratio of 1.28
    low, high = number(0.8), number(1.2)
    _, slope = value_and_gradient(lambda lp: gspo(lp, SAMPLED, ADVANTAGES.abs(), marked, low, high))
    assert slope == [0.0, 0.0, 0.0]
    _, slope = value_and_gradient(lambda lp: gspo(lp, SAMPLED, -ADVANTAGES.abs(), marked, low, high))
    assert all(part > 0 for part in slope)


def test_each_row_has_a_ratio_of_its_own() -> None:
    logprobs = torch.tensor([NOW, NOW], dtype=torch.float64)
    marked = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    terms = gspo(logprobs, SAMPLED.repeat(2, 1), torch.ones(2, 3, dtype=torch.float64), marked, *WIDE)
    assert terms.loss[0].tolist() == pytest.approx([-1.0] * 3)
    assert terms.loss[1].tolist() == pytest.approx([-math.exp(0.5)] * 3)


def test_a_row_without_a_marked_token_has_the_ratio_1() -> None:
    value, _ = value_and_gradient(lambda lp: gspo(lp, SAMPLED, ADVANTAGES, torch.zeros_like(ALL), *WIDE))
    assert value == pytest.approx(-2.5, abs=1e-9)
