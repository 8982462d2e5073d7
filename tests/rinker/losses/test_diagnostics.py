"""What is measured beside a loss: how far the sampling policy is, and which tokens count."""

from __future__ import annotations

import pytest
import torch

from reward_loop.rinker.losses.diagnostics import kl_estimates, row_means, taking_part
from tests.rinker.losses.vectors import NOW, SAMPLED


def test_the_estimates_at_the_reference_vector() -> None:
    found = kl_estimates(torch.tensor([NOW], dtype=torch.float64), SAMPLED)
    means = {name.rpartition("_")[2]: values.mean().item() for name, values in found.items()}
    assert means == pytest.approx({"v1": 0.0, "v2": 0.083333, "v3": 0.085084}, abs=1e-6)


def test_v1_and_v3_are_unbiased_and_v2_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([0.02, 0.08, 0.1, 0.2, 0.6], dtype=torch.float64)
    q = torch.tensor([0.6, 0.2, 0.1, 0.08, 0.02], dtype=torch.float64)
    exact = (q * (q / p).log()).sum().item()
    tokens = torch.multinomial(q, 200_000, replacement=True, generator=generator)
    found = kl_estimates(p.log()[tokens], q.log()[tokens])
    assert found["kl_sample_train_v1"].mean().item() == pytest.approx(exact, rel=0.02)
    assert found["kl_sample_train_v3"].mean().item() == pytest.approx(exact, rel=0.02)
    assert found["kl_sample_train_v2"].mean().item() > 1.2 * exact


def test_a_mean_is_of_the_tokens_that_count_and_by_the_row() -> None:
    values = torch.tensor([[1.0, 2.0, float("nan")], [5.0, 6.0, 7.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, False], [False, True, True], [False, False, False]])
    assert row_means(values, mask).tolist() == [1.5, 6.5, 0.0]


def test_a_token_counts_if_it_has_a_weight_of_any_target() -> None:
    assert taking_part({"weights": torch.tensor([[0.0, -1.0]])}).tolist() == [[False, True]]
    assert taking_part({"weights": torch.tensor([[[0.0, 0.0], [0.0, 0.5]]])}).tolist() == [[False, True]]


def test_a_token_counts_if_it_was_sampled() -> None:
    advantages, logprobs = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.0, -1.0, 0.0]])
    assert taking_part({"advantages": advantages, "logprobs": logprobs}).tolist() == [[False, True, True]]
    mask = torch.tensor([[1.0, 0.0, 0.0]])
    assert taking_part({"advantages": advantages, "logprobs": logprobs, "mask": mask}).tolist() == [[True, False, False]]
