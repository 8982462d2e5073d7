"""Search-R1: the last <answer>, compared as SQuAD does."""

import numpy as np
import pytest

from reward_loop.errors import DataError
from reward_loop.functions.search_r1 import compute_score

TRUTH = {"target": ["The Beatles", "Beatles, The"]}


@pytest.mark.parametrize("answer", ["The Beatles", "beatles", " the  BEATLES. ", "Beatles The"])
def test_case_punctuation_articles_and_spaces_do_not_count(answer: str) -> None:
    assert compute_score(f"I think <answer>{answer}</answer>", TRUTH) == 1.0


@pytest.mark.parametrize(
    "text",
    ["The Beatles", "<answer>", "<answer>The Beatles", "The Beatles</answer>", "</answer>The Beatles<answer>", ""],
)
def test_without_a_whole_tag_there_is_no_answer(text: str) -> None:
    assert compute_score(text, TRUTH, format_score=0.1) == 0.0


def test_the_last_answer_counts() -> None:
    text = "<answer>Stones</answer> or <answer>Beatles</answer>"
    assert compute_score(text, TRUTH) == 1.0
    assert compute_score(text, {"target": "Stones"}) == 0.0


def test_a_quarter_for_more_than_ten_tags() -> None:
    assert compute_score("<answer>Beatles</answer>" * 10, TRUTH) == 1.0
    assert compute_score("<answer>Beatles</answer>" * 11, TRUTH) == 0.25
    assert compute_score("<answer>" * 10 + "<answer>Beatles</answer>", TRUTH, score=2.0) == 0.5


def test_a_wrong_answer_gets_the_format_score() -> None:
    assert compute_score("<answer>Stones</answer>", TRUTH, format_score=0.1) == 0.1


def test_an_answer_of_punctuation_is_not_an_answer_of_articles() -> None:
    assert compute_score("<answer>...</answer>", {"target": "The"}) == 0.0
    assert compute_score("<answer>the</answer>", {"target": "The"}) == 1.0


@pytest.mark.parametrize("target", ["1998", 1998, np.array(["1998"], dtype=object), ("1998",)])
def test_targets_come_as_a_text_a_number_or_any_sequence(target: object) -> None:
    assert compute_score("<answer>1998</answer>", {"target": target}) == 1.0


@pytest.mark.parametrize("truth", [None, "Beatles", {}, {"target": None}, {"target": []}, {"target": [None]}, {"target": ""}])
def test_a_missing_target_is_refused(truth: object) -> None:
    with pytest.raises(DataError, match="ground truth"):
        compute_score("<answer>Beatles</answer>", truth)  # type: ignore[arg-type]
