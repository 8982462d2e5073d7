"""DAPO: the last `Answer:` of the tail in Minerva's normal form, +1 or -1."""

import pytest

from reward_loop.errors import DataError
from reward_loop.functions.math_dapo import compute_score, minerva_form


def test_the_last_answer_line_decides() -> None:
    assert compute_score("Answer: 33\nNo.\nanswer : $34$", "34") == {"score": 1.0, "acc": True, "pred": "34"}
    assert compute_score("Answer: 34\nAnswer: 33", "34") == {"score": -1.0, "acc": False, "pred": "33"}


@pytest.mark.parametrize("text", ["It is 34", r"\boxed{34}", "", None, 34, "Answer:", "Answer: 34" + "." * 300])
def test_no_answer_line_in_the_tail_is_invalid(text: object) -> None:
    assert compute_score(text, "34") == {"score": -1.0, "acc": False, "pred": "[INVALID]"}


def test_strict_box_verify_takes_the_box_of_the_last_100_characters() -> None:
    assert compute_score(r"Answer: 33. \boxed{34}", "34", strict_box_verify=True)["acc"]
    assert compute_score("Answer: 34", "34", strict_box_verify=True)["pred"] == "[INVALID]"
    assert compute_score(r"\boxed{34}" + "." * 95, "34", strict_box_verify=True)["pred"] == "[INVALID]"


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("x = 5", "5"),
        ("$10,000$", "10000"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"34\text{ cm}", "34"),
        (r"\text{East}", "East"),
        (r"30^\circ", "30"),
        ("5 dollars", "5"),
        (r"\boxed{34}", "34"),
        ("the 1, 2", "the1,2"),
    ],
)
def test_minerva_form(answer: str, form: str) -> None:
    assert minerva_form(answer) == form


def test_an_answer_of_which_nothing_remains_is_never_right() -> None:
    assert compute_score("Answer: units", "inches")["score"] == -1.0


def test_a_missing_truth_is_refused() -> None:
    with pytest.raises(DataError, match="neither a text nor a number"):
        compute_score("Answer: 34", None)  # type: ignore[arg-type]
