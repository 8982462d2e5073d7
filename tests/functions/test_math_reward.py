"""MATH: the last box, compared as normalised text."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import DataError
from reward_loop.functions.math_reward import compute_score

MATH = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "math"
needs_math = pytest.mark.skipif(not MATH.exists(), reason="the MATH data is not beside the checkout")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (MATH / name).read_text(encoding="utf-8").splitlines()]


@needs_math
def test_all_500_reference_solutions_of_math_500_are_right() -> None:
    assert sum(compute_score(row["solution"], row["answer"]) for row in rows("math500.jsonl")) == 500


@needs_math
def test_no_reference_solution_of_math_500_is_right_for_the_next_problem() -> None:
    problems = rows("math500.jsonl")
    wrong = [
        (one["answer"], other["answer"])
        for one, other in pairwise(problems)
        if one["answer"] != other["answer"].removeprefix("x=") and compute_score(one["solution"], other["answer"])
    ]
    assert wrong == []


@needs_math
def test_all_400_labelled_responses_are_judged_as_labelled() -> None:
    agree = [
        compute_score(response, row["gt"]) == label
        for row in rows("math_cot_50.jsonl")
        for response, label in zip(row["code"], row["score"], strict=True)
    ]
    assert (sum(agree), len(agree)) == (400, 400)


def test_an_answer_outside_a_box_is_no_answer() -> None:
    assert compute_score("The answer is 5", "5") == 0.0
    assert compute_score(r"\boxed{4}, no: 5", "5") == 0.0
    assert compute_score(r"\boxed{}", "5") == 0.0


def test_a_truth_that_came_as_a_float_is_the_whole_number() -> None:
    assert compute_score(r"\boxed{18}", 18.0) == 1.0


@pytest.mark.parametrize("truth", [None, "", ["5"]])
def test_a_missing_truth_is_refused(truth: object) -> None:
    with pytest.raises(DataError, match="neither a text nor a number"):
        compute_score(r"\boxed{5}", truth)  # type: ignore[arg-type]
