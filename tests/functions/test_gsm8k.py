"""GSM8K: the final number, compared exactly, and nothing that only looks like it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.gsm8k import compute_score

SOLUTIONS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "gsm8k" / "example_model_solutions.jsonl"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
needs_solutions = pytest.mark.skipif(not SOLUTIONS.exists(), reason="the GSM8K model solutions are not beside the checkout")


def labelled_solutions() -> list[tuple[str, str, bool]]:
    rows = [json.loads(line) for line in SOLUTIONS.read_text(encoding="utf-8").splitlines()]
    return [
        (row[model]["solution"], row["ground_truth"].rsplit("A: ", 1)[1], row[model]["is_correct"])
        for row in rows
        for model in MODELS
    ]


@needs_solutions
def test_strict_agrees_with_all_5276_published_labels() -> None:
    solutions = labelled_solutions()
    agree = [compute_score(text, truth, marker="A:") == label for text, truth, label in solutions]
    assert (sum(agree), len(agree)) == (5276, 5276)


@needs_solutions
def test_flexible_agrees_with_all_5276_published_labels() -> None:
    agree = [compute_score(text, truth, method="flexible") == label for text, truth, label in labelled_solutions()]
    assert (sum(agree), len(agree)) == (5276, 5276)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        ("18", "18"),
        ("18", 18),
        ("18.0", "18"),
        ("18", 18.0),
        ("18.", "18"),
        ("$18", "18"),
        (r"\$18", "$18"),
        ("-$18", "-18"),
        ("$-18", "-18"),
        ("\N{MINUS SIGN}18", "-18"),
        ("5,600", "5600"),
        ("5600", "5,600."),
        ("1,234,567.5", "1234567.5"),
        (".5", "0.5"),
        ("18 dollars", "18"),
        ("18**", "18"),
        ("18\nmore text", "18"),
    ],
)
@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_one_number_has_many_spellings(answer: str, truth: str | float, method: str) -> None:
    assert compute_score(f"So she has\n#### {answer}", truth, method=method) == 1.0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        "18/5",
        "18 / 5",
        "18*2",
        "18 + 2",
        "18^2",
        "18e2",
        "18 million",
        "18:30",
        "1,8",
        "1.8.0",
        "180",
        "0.18",
        "18\u0665",
        "",
        "x",
    ],
)
@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_what_only_begins_like_the_truth_is_wrong(answer: str, method: str) -> None:
    assert compute_score(f"#### {answer}", "18", method=method) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["7/18", "20-18", "x18", "3 * 18", "12:18", "\u0661\u0668", "#### -18", "1e18"])
def test_what_only_ends_like_the_truth_is_wrong(text: str) -> None:
    assert compute_score(text, "18", method="flexible") == 0.0


def test_numbers_compare_exactly_where_floats_would_not() -> None:
    assert compute_score("#### 9007199254740993", "9007199254740992") == 0.0
    assert compute_score("#### 0.30000000000000004", "0.3") == 0.0


def test_strict_needs_the_marker_and_flexible_does_not() -> None:
    assert compute_score("The answer is 18", "18") == 0.0
    assert compute_score("The answer is 18", "18", method="flexible") == 1.0


def test_the_last_marked_number_counts() -> None:
    assert compute_score("#### 17\n#### 18", "18") == 1.0
    assert compute_score("#### 18\n#### 17", "18") == 0.0
    assert compute_score("#### 18\n#### The end", "18") == 1.0


def test_strict_reads_the_last_300_characters_only() -> None:
    assert compute_score("#### 18" + "." * 293, "18") == 1.0
    assert compute_score("#### 18" + "." * 294, "18") == 0.0


def test_flexible_reads_a_number_far_from_the_end() -> None:
    assert compute_score("it is 18" + " and so on" * 1000, "18", method="flexible") == 1.0


def test_scores_for_right_wrong_and_missing_are_options() -> None:
    answers = ["#### 18", "#### 17", "no number"]
    assert [compute_score(text, "18", score=2.0, format_score=0.5) for text in answers] == [2.0, 0.5, 0.0]


@pytest.mark.parametrize("truth", ["Eggs: 16 - 3 = 13\n#### 18", "eighteen", "1/2", float("nan"), None, "", [18], True])
def test_a_truth_that_is_no_plain_number_is_refused(truth: object) -> None:
    with pytest.raises(DataError, match="ground truth"):
        compute_score("#### 18", truth)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"method": "fuzzy"}, {"marker": ""}])
def test_an_unknown_method_and_an_empty_marker_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="use 'strict' with a marker or 'flexible'"):
        compute_score("#### 18", "18", **options)  # type: ignore[arg-type]


@given(number=st.integers(), places=st.integers(0, 3))
def test_a_number_is_right_for_itself_and_wrong_for_the_next(number: int, places: int) -> None:
    text = f"#### {number:,}" + ("." + "0" * places if places else "")
    assert compute_score(text, str(number)) == 1.0
    assert compute_score(text, str(number + 1)) == 0.0
    assert compute_score(text, str(number), method="flexible") == 1.0
