"""Boxes are found with balanced braces; the normal form joins spellings and never two answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.functions.latex_answer import last_boxed, normal_form, same_form


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{4} then \boxed{5}", "5"),
        (r"\boxed{4} then \fbox{5}", "5"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed {5}", "5"),
        (r"is $\boxed 5$ and", "5"),
        (r"\boxed 5.", "5"),
        (r"\boxed \frac{1}{2}.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{}", ""),
        (r"\boxed{5", None),
        (r"\boxed{4} then \boxed{5", None),
        (r"\boxed", None),
        ("boxed{5}", None),
        ("", None),
    ],
)
def test_the_last_box(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\dfrac{1}{2}", r"\tfrac12"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac{72}1", r"\frac{72}{1}"),
        ("1/2", r"\frac{1}{2}"),
        ("-1/2", r"\frac{-1}{2}"),
        ("0.5", r"\frac{1}{2}"),
        (".5", "0.5"),
        (r"\sqrt3", r"\sqrt{3}"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"),
        (r"50\%", "50"),
        (r"\$36", "36"),
        (r"30^\circ", "30"),
        (r"30^{\circ}", "30"),
        (r"15\mbox{ cm}^2", "15"),
        (r"5\text{cm}", "5"),
        (r"\text{East}", "East"),
        ("x=5", "5"),
        (r"10,\!080", "10080"),
        ("1{,}000", "1,000"),
        ("5.", "5"),
        (r"2\pi  r", r"2 \pi r"),
    ],
)
def test_two_spellings_of_one_answer(one: str, other: str) -> None:
    assert same_form(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 2", "12"),
        (r"1\quad 2", "12"),
        (r"1 \qquad~ 2", "12"),
        ("1~2", "12"),
        (r"5\text{ or }6", "5"),
        ("(1,000)", "(1000)"),
        ("5=x", "x"),
        (r"\pi r", r"\pir"),
        (r"\leftarrow", "arrow"),
        ("1,23", "123"),
        ("x", "\u0445"),
        ("5m", "5"),
        ("", ""),
    ],
)
def test_two_answers_stay_two(one: str, other: str) -> None:
    assert not same_form(one, other)


@given(st.text(alphabet="\\{}[]() .,=/%$^_abcdefghijklmnopqrstuvwxyz0123456789"))
def test_any_boxed_text_with_balanced_braces_comes_back(content: str) -> None:
    depth, lowest = 0, 0
    for char in content:
        depth += {"{": 1, "}": -1}.get(char, 0)
        lowest = min(lowest, depth)
    if "\\" not in content and depth == lowest == 0:
        assert last_boxed(rf"so \boxed{{{content}}}") == content.strip()


@given(st.text())
def test_any_text_has_a_normal_form_and_at_most_one_box(text: str) -> None:
    normal_form(text)
    assert last_boxed(text.replace("box", "")) is None
