"""Equal answers are found equal, and no wrong answer is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.functions.symbolic_answer import same_answer

PIECES = [
    *("{", "}", "(", ")", "[", "]", ",", "+", "-", "*", "/", "^", "_", "1", "2", "x", "i", "e", " ", "\\", "$", "%", "π", "√"),
    *(r"\frac", r"\sqrt", r"\sqrt[", r"\pi", r"\sin", r"\log", r"\cup", r"\text{", r"\{", r"\}", r"\begin{pmatrix}"),
    *(r"\end{", r"\href", r"\verb", r"\cite{", r"\footnote{", r"\title{", r"\input{a}", r"\(", "\\\\", " or ", "cm"),
]


@pytest.mark.parametrize(
    ("candidate", "truth"),
    [
        (r"\frac12+\frac x2", r"\frac{x+1}{2}"),
        (r"x^{b+a}", r"x^{a+b}"),
        ("0.25", r"\frac14"),
        ("12.50", "12.5"),
        (r"r\cdot 2\pi", r"2\pi r"),
        (r"\sqrt{12}", r"2\sqrt3"),
        (r"2^{1/3}", r"\sqrt[3]{2}"),
        (r"\sqrt{3}/2", r"\dfrac{\sqrt{3}}{2}"),
        (r"3\frac12", r"\frac72"),
        ("-3 1/2", r"-\frac72"),
        ("5 cm", "5"),
        ("(x+1)^2", "x^2+2x+1"),
        (r"\sin 2x", r"2\sin x\cos x"),
        ("2x-1", r"e^{i\pi}+2x"),
        ("(1, 0.5)", r"(1,\frac{1}{2})"),
        (r"[1, \infty)", r"\left[1,\infty\right)"),
        (r"(-\infty, 1) \cup (2, \infty)", r"(-\infty,1)\cup(2,\infty)"),
        ("1 or 2", "1,2"),
        (r"1\text{ and }2", "1,2"),
        (r"\{1, 0.5\}", r"\{1,\frac12\}"),
        (r"\text{East}", "east"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ],
)
def test_equal_answers(candidate: str, truth: str) -> None:
    assert same_answer(candidate, truth)
    assert same_answer(truth, candidate)


@pytest.mark.parametrize(
    ("candidate", "truth"),
    [
        (r"x+\frac12", r"\frac{x+1}{2}"),
        ("x^a+b", "x^{a+b}"),
        ("0", r"\pi(R^2-r^2)"),
        ("0.3333333333", r"\frac13"),
        ("10000000000000000000001", "10000000000000000000000"),
        ("(1,2)", "[1,2)"),
        ("(1,2)", r"\{1,2\}"),
        ("(2,1)", "(1,2)"),
        ("(1,2),(3,4)", "(1,2,3,4)"),
        (r"(1,2)\cup(3,4)", "(1,2),(3,4)"),
        ("(100,200)", "100200"),
        ("cat", "act"),
        ("12", "1 2"),
        ("5m", "5"),
        (r"\vec{a}", "a"),
        (r"\infty-\infty", "0"),
        (r"2\title{ or 3}", "2"),
        (r"x+2\input{notes}", "x+2"),
        (r"2x\overline{", "2x"),
        (r"x^2\frac13", "x^{2+1/3}"),
        ("x", "\u0445"),
        ("", "x"),
        ("x", ""),
        ("5", r"5\text{ or }6"),
    ],
)
def test_different_answers(candidate: str, truth: str) -> None:
    assert not same_answer(candidate, truth)
    assert not same_answer(truth, candidate)


@pytest.mark.parametrize(("candidate", "truth"), [("1+1", "2"), ("4/2", "2"), (r"\sqrt{4}", "2"), (r"\frac24", r"\frac12")])
def test_whole_numbers_must_be_given_as_such_and_fractions_reduced(candidate: str, truth: str) -> None:
    assert not same_answer(candidate, truth)


def test_a_truth_that_is_no_mathematics_is_compared_as_text() -> None:
    assert same_answer(r"\mathcal{L}  \vee 2", r"\mathcal{L} \vee 2")
    assert not same_answer(r"\mathcal{L}", r"\mathcal{M}")
    assert same_answer("{" * 100, "{" * 100)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from(["2", r"\frac{x+1}{2}", "(1,2]"]))
@settings(deadline=None)
def test_no_sequence_of_latex_crashes_the_comparison(candidate: str, truth: str) -> None:
    assert same_answer(candidate, truth) in (True, False)


def test_python_in_an_answer_is_never_run() -> None:
    with_effect = "__import__('sys').modules.update(pwned=1)"
    assert not same_answer(with_effect, "x+1")
    assert same_answer(with_effect, with_effect)


@pytest.mark.parametrize(
    "candidate",
    [
        "9^{9^{9^9}}",
        "9**9**9",
        "x" + "^x" * 90,
        r"\frac{1}{1+" * 18 + "x" + "}" * 18,
        "{" * 400,
        r"\frac" * 90,
        "9" * 499,
    ],
)
def test_hostile_answers_are_wrong_at_once(candidate: str) -> None:
    assert not same_answer(candidate, "x+1")
