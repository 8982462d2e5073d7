"""Reading a score: the forms that judges write, and the ones that can't be told."""

from __future__ import annotations

import re

import pytest

from reward_loop.rubrics.judges.reading import Reading, read_by, read_score

UNIT = (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score (0-1): 0.8", 0.8),  # the first four are those that OpenEnv's own pattern gets wrong
        ("-0.5", -0.5),
        (".5", 0.5),
        ("8/10", 0.8),
        ("Score (0-10): 8", 0.8),
        ("Score (1-5): 3", 0.5),
        ("Score (0 to 10): 7.", 0.7),
        ("**Score:** 0.75", 0.75),
        ("**Score**: `0.75`", 0.75),
        ("Rating: 4 out of 5", 0.8),
        ("The score is 0.3.", 0.3),
        ("It has 3 errors in 20 lines.\nScore: 0.4", 0.4),
        ("Score: 0.4\nFinal score: 0.4", 0.4),
        ("80%", 0.8),
        ("1", 1.0),
        ("1e-1", 0.1),
        ('{"score": 0.25, "reasoning": "9 of 10 are wrong"}', 0.25),
        ('Here it is:\n```json\n{"reasoning": "score: 1", "score": 0.25}\n```', 0.25),
        ('{"score": "8/10"}', 0.8),
        ('{"score": 0.6} is what I think of these 3 lines.', 0.6),
        ("<think>Score: 1? No.</think>Score: 0.2", 0.2),
        ("0.8 overall", 0.8),
    ],
)
def test_a_score_is_read_as_it_is_meant(text: str, score: float) -> None:
    reading = read_score(text)
    assert reading is not None
    assert reading.on(UNIT) == pytest.approx(score)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "very good",
        "0.3 or 0.8",
        "between 0.3 and 0.8",
        "0.5-0.7",
        "Score: 0.5 to 0.7",
        "Score: 0.3\nFinal score: 0.8",
        '{"score": 0.',
        '{"score": 0.1',
        '{"verdict": 1}',
        '{"score": NaN}',
        '{"score": 1e999}',
        '{"score": 1' + "0" * 400 + "}",
        "1e999",
        "nan",
        '{"parts": {"score": 1}, "score": 0.',
        '{"score": null}',
        '{"score": [1]}',
        "version 1.2.3",
        "1,000",
        "Score: high",
        "[" * 100_000,
    ],
)
def test_what_can_not_be_told_is_no_score(text: str) -> None:
    assert read_score(text) is None


def test_a_score_of_another_scale_is_carried_over() -> None:
    assert Reading(8, (0, 10)).on((0, 5)) == 4
    assert Reading(3, (1, 5)).on((-1, 1)) == 0
    assert Reading(3).on((1, 5)) == 3
    assert Reading(1, (0, 0)).on(UNIT) is None


@pytest.mark.parametrize(
    ("pattern", "text", "score"),
    [
        (r"<s>(.*)</s>", "<s>0.5</s>", 0.5),
        (r"\d", "a 7", 7.0),
        (r"<s>(.*)</s>", "<s>x</s>", None),
        (r"(x)?\d", "7", None),
        ("a", "b", None),
        (".+", "nan", None),
        (".+", "inf", None),
    ],
)
def test_a_pattern_finds_its_first_group_or_its_match(pattern: str, text: str, score: float | None) -> None:
    reading = read_by(re.compile(pattern), text)
    assert (reading and reading.value) == score
