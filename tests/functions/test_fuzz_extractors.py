"""No response, however contrived, breaks a rule, makes a wrong answer right or takes more than linear time to read."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import DataError, Unscorable
from reward_loop.functions.math_verify import extract_answer

FINAL = {
    "gsm8k": "#### {}",
    "math_reward": r"So \boxed{{{}}}.",
    "math_dapo": "Answer: {}",
    "prime_math": r"So \boxed{{{}}}.",
    "geo3k": r"So \boxed{{{}}}.",
    "search_r1": "<answer>{}</answer>",
    "math_verify": r"So \boxed{{{}}}.",
}
"""Each rule, and how a response ends that gives its final answer."""

FRAGMENTS = [
    *("#### ", "18", "34", "-", "$", ",", ".", " ", "\n", "x", "+", "=", "(", ")", "[", "]", "{", "}", "\\", "%", "&", "_"),
    *(r"\boxed{", r"\boxed", r"\fbox{", r"\frac", r"\dfrac{", r"\sqrt", r"\sqrt[", r"\text{", r"\mathrm{", r"\left(", r"\right"),
    *(
        r"\{",
        r"\}",
        r"\cup",
        r"\pi",
        r"\infty",
        r"\pm",
        r"\cdot",
        r"\circ",
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        r"\\",
        r"\quad",
    ),
    *("answer is ", "Answer: ", "final answer is ", "<answer>", "</answer>", "<think>", "</think>", "**", " or ", " and ", "cm"),
    *("\u0661\u0668", "\uff11\uff18", "\u00b2", "\u2212", "\u00d7", "\u2028", "\x00", "\ud800", "\U0001d7d9", "e5", "1/2"),
]
# Powers, factorials, chains of fractions and nested brackets may take math-verify any time, which ends at a process's deadline.
NOT_FOR_MATH_VERIFY = str.maketrans("", "", "^!\u00b2/[")

BITS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)
NESTED = st.builds(lambda depth, inner: r"\frac{" * depth + inner + "}" * depth, st.integers(0, 400), BITS)
BOXES = st.builds(lambda count, inner: rf"\boxed{{{inner}}}" * count, st.integers(1, 40), BITS)
TEXTS = st.one_of(st.text(), BITS, NESTED, BOXES, st.builds(lambda a, b, c: a + b * c, BITS, BITS, st.integers(0, 200)))
INTEGERS = st.integers(-(10**6), 10**6)
every_rule = pytest.mark.parametrize("rule", FINAL)


def score(rule: str, text: str, truth: object, **options: Any) -> float:
    function: Callable[..., Any] = import_module(f"reward_loop.functions.{rule}").compute_score
    given_truth = {"target": [truth]} if rule == "search_r1" else truth
    if rule == "math_verify":
        text, given_truth = text.translate(NOT_FOR_MATH_VERIFY), str(truth).translate(NOT_FOR_MATH_VERIFY)
    reward = function(text, given_truth, **options)
    return float(reward["score"] if isinstance(reward, dict) else reward)


def right(rule: str, text: str, truth: object, **options: Any) -> bool:
    return score(rule, text, truth, **options) >= 0.5


@every_rule
@given(text=TEXTS, truth=st.sampled_from(["18", "-34", "18.5", "1000"]))
@settings(deadline=None, max_examples=80)
def test_any_response_gets_a_finite_score(rule: str, text: str, truth: str) -> None:
    for response in (text, FINAL[rule].format(text)):
        assert math.isfinite(score(rule, response, truth))


@every_rule
@given(truth=TEXTS)
@settings(deadline=None, max_examples=50)
def test_any_truth_is_judged_or_refused_as_what_it_is(rule: str, truth: str) -> None:
    reward = 0.0
    with suppress(DataError, Unscorable):
        reward = score(rule, FINAL[rule].format("18"), truth)
    assert math.isfinite(reward)


@every_rule
@given(truth=INTEGERS, at=st.integers(0, 40), piece=st.sampled_from(FRAGMENTS))
@settings(deadline=None, max_examples=50)
def test_a_right_answer_is_right_and_with_one_piece_too_many_it_breaks_nothing(
    rule: str, truth: int, at: int, piece: str
) -> None:
    response = "It is 3 and 4.\n" + FINAL[rule].format(truth)
    assert right(rule, response, str(truth))
    assert math.isfinite(score(rule, response[:at] + piece + response[at:], str(truth)))


@every_rule
@given(before=TEXTS, truth=INTEGERS, answer=INTEGERS)
@settings(deadline=None, max_examples=80)
def test_another_number_as_the_final_answer_is_never_right(rule: str, before: str, truth: int, answer: int) -> None:
    spoken = "".join(FINAL[each].format(truth) for each in FINAL)
    if answer != truth:
        assert not right(rule, f"{before}\n{spoken} {truth}\n{FINAL[rule].format(answer)}", str(truth))


@every_rule
@given(truth=INTEGERS, others=st.lists(INTEGERS, min_size=1, max_size=5), between=st.sampled_from([", ", " or ", "; ", " and "]))
@settings(deadline=None, max_examples=50)
def test_a_list_of_candidates_is_not_right_because_the_truth_is_among_them(
    rule: str, truth: int, others: list[int], between: str
) -> None:
    # By GSM8K's definition the number right after the marker is the answer, whatever follows it.
    candidates = [*others, truth] if rule == "gsm8k" else [truth, *others]
    if truth not in others:
        assert not right(rule, FINAL[rule].format(between.join(map(str, candidates))), str(truth))


@given(before=TEXTS, truth=INTEGERS, answer=INTEGERS)
@settings(deadline=None, max_examples=50)
def test_gsm8k_flexible_takes_the_last_number(before: str, truth: int, answer: int) -> None:
    if answer != truth:
        assert not right("gsm8k", f"{before} {truth}\nIt is {answer}", str(truth), method="flexible")


PIECES = [
    *FRAGMENTS,
    "9",
    "1,",
    "1 ",
    "a",
    r"\boxed{18}",
    "answer is 18 ",
    "final answer ",
    "$1$ and ",
    r"\(1\)",
    "18 = ",
    "1+",
    "(1",
]


@every_rule
def test_reading_a_response_takes_linear_time(rule: str) -> None:
    def seconds(piece: str, size: int) -> float:
        text = piece * (size // len(piece))
        started = time.thread_time()
        for response in (text, FINAL[rule].format(text), r"\boxed{" + text):
            read(rule, response)
        return time.thread_time() - started

    read(rule, "18")  # imports
    for piece in PIECES:
        if (large := seconds(piece, 40_000)) > 0.05:
            large, small = (min(seconds(piece, size) for _ in range(3)) for size in (40_000, 5_000))
            assert large / small < 30, f"8 times as many {piece!r} take {large / small:.0f} times as long"


def read(rule: str, response: str) -> None:
    """Score a response; of math_verify only find the answer, for what sympy makes of it may take any time."""
    if rule == "math_verify":
        extract_answer(response)
    else:
        score(rule, response, "18")
