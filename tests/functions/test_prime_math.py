"""NuminaMath: the boxed or announced answer, equal as mathematics."""

import pytest

from reward_loop.errors import DataError
from reward_loop.functions.prime_math import compute_score, extract_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"The answer is 4, boxed \boxed{\frac12}.", r"\frac12"),
        ("The answer is 5. Thanks.", "5"),
        ("Final answer: **2x+1**", "2x+1"),
        ("The answer is 4.\nNo, the answer is: $5$", "5"),
        ("so there are 3 or 12,000.", "12,000"),
        ("hence 7/2", "7/2"),
        ("no idea", None),
        ("", None),
    ],
)
def test_the_answer_is_the_box_else_the_announcement_else_the_last_number(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_the_answer_is_right_if_it_is_equal_as_mathematics() -> None:
    assert compute_score(r"\boxed{(x+1)^2}", "x^2+2x+1") == 1.0
    assert compute_score(r"\boxed{(x+1)^3}", "x^2+2x+1") == 0.0
    assert compute_score("no idea", "5") == 0.0


def test_a_missing_truth_is_refused() -> None:
    with pytest.raises(DataError, match="neither a text nor a number"):
        compute_score(r"\boxed{5}", None)  # type: ignore[arg-type]
