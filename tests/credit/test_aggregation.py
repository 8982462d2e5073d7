"""From a loss per token to one number: verl's values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reward_loop.credit.aggregation import Aggregation, aggregate
from reward_loop.errors import ConfigError

VALUES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, float("inf")]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


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
def test_each_way_to_weigh_tokens(how: Aggregation, expected: float) -> None:
    assert aggregate(VALUES, MASK, how).item() == pytest.approx(expected)
    empty = torch.zeros(1, 3)
    more = aggregate(torch.cat([VALUES, empty]), torch.cat([MASK, empty.int()]), how)
    assert more.item() == pytest.approx(expected)  # a sequence without tokens does not count
    assert aggregate(empty, empty, how).item() == 0.0


def test_dr_grpo_divides_by_a_constant() -> None:
    assert aggregate(VALUES, MASK, "seq-mean-token-sum-norm", max_tokens=10).item() == pytest.approx(0.75)


def test_masked_tokens_have_no_gradient() -> None:
    values = VALUES.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(aggregate(values, MASK, "token-mean"), values)
    assert gradient.tolist() == [[pytest.approx(0.2)] * 3, [pytest.approx(0.2), pytest.approx(0.2), 0.0]]


def test_what_does_not_fit_is_refused() -> None:
    wrong: Any = "mean"
    with pytest.raises(ConfigError, match="how='mean' is none of token-mean"):
        aggregate(VALUES, MASK, wrong)
    with pytest.raises(ConfigError, match="must have one shape"):
        aggregate(VALUES, MASK[:1])
