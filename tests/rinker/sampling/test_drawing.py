from __future__ import annotations

import pytest
import torch

from reward_loop.rinker.sampling.drawing import Drawing
from reward_loop.rinker.types import SamplingParams

PROBS = torch.tensor([0.1, 0.4, 0.3, 0.2])


def drawn(params: SamplingParams, count: int = 100) -> list[int]:
    """What numbers that are spread evenly over [0, 1) draw from PROBS."""
    drawing = Drawing.of([params] * count, 4, torch.device("cpu"))
    evenly = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return drawing.draw(PROBS.log().expand(count, 4), evenly).tolist()


def shares(params: SamplingParams) -> list[float]:
    tokens = drawn(params)
    return [tokens.count(token) / 100 for token in range(4)]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), [0.1, 0.4, 0.3, 0.2]),
        (SamplingParams(top_k=2), [0, 0.57, 0.43, 0]),
        (SamplingParams(top_k=9), [0.1, 0.4, 0.3, 0.2]),
        (SamplingParams(top_p=0.4), [0, 1, 0, 0]),
        (SamplingParams(top_p=0.41), [0, 0.57, 0.43, 0]),
        (SamplingParams(top_p=0.89), [0, 0.44, 0.34, 0.22]),
        (SamplingParams(top_k=3, top_p=0.5), [0, 0.57, 0.43, 0]),  # 0.5 of what top_k leaves
        (SamplingParams(temperature=0.0), [0, 1, 0, 0]),
        (SamplingParams(temperature=0.5), [0.03, 0.54, 0.3, 0.13]),
        (SamplingParams(temperature=1e-30), [0, 1, 0, 0]),
    ],
    ids=str,
)
def test_tokens_are_drawn_by_their_share(params: SamplingParams, expected: list[float]) -> None:
    assert shares(params) == pytest.approx(expected, abs=0.011)


def test_each_sequence_is_drawn_by_its_own_parameters() -> None:
    params = [SamplingParams(temperature=0.0), SamplingParams(top_k=1), SamplingParams(), SamplingParams(top_p=0.5)]
    drawing = Drawing.of(params, 4, torch.device("cpu"))
    numbers = torch.tensor([0.99, 0.99, 0.99, 0.99], dtype=torch.float64)
    assert drawing.draw(PROBS.log().expand(4, 4), numbers).tolist() == [1, 1, 3, 2]
    assert drawing.select(torch.tensor([2, 0])).draw(PROBS.log().expand(2, 4), numbers[:2]).tolist() == [3, 1]


def test_a_token_that_is_impossible_is_never_drawn() -> None:
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf")]] * 3)
    numbers = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)  # 1.0: what rounding could make of a number just below it
    drawing = Drawing.of([SamplingParams()] * 3, 3, torch.device("cpu"))
    assert drawing.draw(logits, numbers).tolist() == [1, 1, 1]
