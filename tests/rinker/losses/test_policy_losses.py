"""importance_sampling, ppo, cispo and dro at the reference vector, with their gradients, and at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from reward_loop.rinker.losses.cispo import cispo
from reward_loop.rinker.losses.dro import dro
from reward_loop.rinker.losses.importance_sampling import importance_sampling
from reward_loop.rinker.losses.loss import LossTerms
from reward_loop.rinker.losses.ppo import ppo
from tests.rinker.losses.vectors import ADVANTAGES, NOW, SAMPLED, number, value_and_gradient

LOW, HIGH = number(0.8), number(1.2)
Loss = Callable[[torch.Tensor], LossTerms]


@pytest.mark.parametrize(
    ("loss", "value", "gradient"),
    [
        (lambda lp: importance_sampling(lp, SAMPLED, ADVANTAGES), -3.345456, [-1.648721, 0.303265, -2.0]),
        (lambda lp: ppo(lp, SAMPLED, ADVANTAGES, LOW, HIGH), -2.8, [0.0, 0.0, -2.0]),
        (lambda lp: ppo(lp, SAMPLED, -ADVANTAGES, LOW, HIGH), 3.345456, [1.648721, -0.303265, 2.0]),
        (lambda lp: cispo(lp, SAMPLED, ADVANTAGES, number(0), number(4)), 2.042191, [-1.648721, 0.303265, -2.0]),
        (lambda lp: dro(lp, SAMPLED, ADVANTAGES, 0.05), 1.0125, [-0.975, 0.475, -2.0]),
    ],
    ids=["importance_sampling", "ppo", "ppo, advantages negated", "cispo", "dro"],
)
def test_the_reference_vector(loss: Loss, value: float, gradient: list[float]) -> None:
    got, slope = value_and_gradient(loss)
    assert got == pytest.approx(value, abs=1e-6)
    assert slope == pytest.approx(gradient, abs=1e-6)


def test_importance_sampling_on_policy_has_the_gradient_of_reinforce() -> None:
    _, slope = value_and_gradient(lambda lp: importance_sampling(lp, SAMPLED, ADVANTAGES), (-1.5, -1.5, -0.5))
    _, reinforce = value_and_gradient(lambda lp: LossTerms(-lp * ADVANTAGES), (-1.5, -1.5, -0.5))
    assert slope == reinforce


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [
        (1.1, 1.0, -1.1),  # inside: as importance sampling
        (1.1, -1.0, 1.1),
        (1.3, 1.0, 0.0),  # already likelier than allowed, and to be made likelier still: left alone
        (1.3, -1.0, 1.3),  # likelier, and to be made less likely: not hindered
        (0.7, 1.0, -0.7),
        (0.7, -1.0, 0.0),
        (1.3, 0.0, 0.0),
    ],
)
def test_ppo_clips_only_what_would_go_further_out(ratio: float, advantage: float, slope: float) -> None:
    sampled = torch.zeros(1, 1, dtype=torch.float64)
    _, got = value_and_gradient(lambda lp: ppo(lp, sampled, number(advantage), LOW, HIGH), (math.log(ratio),))
    assert got == pytest.approx([slope], abs=1e-9)


@pytest.mark.parametrize(("ratio", "advantage"), [(1.25, 1.0), (0.5, -1.0), (0.5, 1.0), (1.25, -1.0)])
def test_ppo_is_not_clipped_at_its_very_thresholds(ratio: float, advantage: float) -> None:
    sampled = torch.zeros(1, 1, dtype=torch.float64)
    low, high = number(math.exp(math.log(0.5))), number(math.exp(math.log(1.25)))
    _, got = value_and_gradient(lambda lp: ppo(lp, sampled, number(advantage), low, high), (math.log(ratio),))
    assert got == pytest.approx([-ratio * advantage], abs=1e-9)


def test_ppo_counts_as_clipped_what_has_lost_its_gradient() -> None:
    terms = ppo(torch.tensor([NOW], dtype=torch.float64), SAMPLED, ADVANTAGES, LOW, HIGH)
    assert terms.shown["clip_frac"].tolist() == [[True, True, False]]


def test_ppo_takes_thresholds_by_the_token() -> None:
    low, high = torch.tensor([[0.8, 0.5, 0.8]], dtype=torch.float64), torch.tensor([[2.0, 1.2, 1.2]], dtype=torch.float64)
    _, slope = value_and_gradient(lambda lp: ppo(lp, SAMPLED, ADVANTAGES, low, high))
    assert slope == pytest.approx([-1.648721, 0.303265, -2.0], abs=1e-6)


def test_cispo_keeps_the_gradient_of_what_it_clips() -> None:
    terms = cispo(torch.tensor([NOW], dtype=torch.float64), SAMPLED, ADVANTAGES, LOW, HIGH)
    _, slope = value_and_gradient(lambda lp: cispo(lp, SAMPLED, ADVANTAGES, LOW, HIGH))
    assert slope == pytest.approx([-1.2, 0.4, -2.0], abs=1e-9)
    assert terms.shown["clip_frac"].tolist() == [[True, True, False]]


@pytest.mark.parametrize("distance", [30.0, 200.0, 1e6])
def test_a_ratio_beyond_all_measure_stays_finite(distance: float) -> None:
    sampled = torch.tensor([[-distance, 0.0]])
    logprobs = torch.tensor([[0.0, -distance]], requires_grad=True)
    for terms in (
        importance_sampling(logprobs, sampled, torch.ones(1, 2)),
        ppo(logprobs, sampled, -torch.ones(1, 2), torch.tensor(0.8), torch.tensor(1.2)),
    ):
        (slope,) = torch.autograd.grad(terms.loss.sum(), logprobs)
        assert terms.loss.isfinite().all()
        assert slope.isfinite().all()
