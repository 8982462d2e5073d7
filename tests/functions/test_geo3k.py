"""Geometry3K: 0.9 for the answer, 0.1 for the form."""

import pytest

from reward_loop.errors import DataError
from reward_loop.functions.geo3k import compute_score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (r"<think>it is</think> so \boxed{2\sqrt{3}}.", 1.0),
        (r"<think>it is</think> so \boxed{5}.", 0.1),
        (r"so \boxed{\sqrt{12}}", 0.9),
        (r"<think>\boxed{2\sqrt{3}}</think>", 0.9),
        (r" <think></think>\boxed{5}", 0.0),
        (r"<think>\boxed{5}", 0.0),
        (r"<think></think>\boxed{5", 0.0),
        ("", 0.0),
    ],
)
def test_answer_and_form_are_scored_apart(text: str, score: float) -> None:
    assert compute_score(text, r"2\sqrt{3}") == pytest.approx(score)


def test_the_weight_of_the_form_is_an_option() -> None:
    assert compute_score(r"\boxed{5}", "5", format_score=0.5) == 0.5


def test_a_missing_truth_is_refused() -> None:
    with pytest.raises(DataError, match="neither a text nor a number"):
        compute_score(r"\boxed{5}", None)  # type: ignore[arg-type]
