"""What counts as the expected output, and what does not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.functions.code_compare import first_difference


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1 2\n3\n", "1 2\n3"),
        ("1  2 \r\n\r\n3", "1 2\n3\n"),
        ("", "\n \n"),
        ("3.0", "3"),
        ("3", "3.0"),
        ("+007", "7"),
        ("0.3333333", "0.33333"),
        ("1e-9", "0.0"),
        ("3.14159 yes", "3.141590001 yes"),
        ("nan", "nan"),
        ("1_000", "1_000"),
    ],
)
def test_the_same_output(printed: str, expected: str) -> None:
    assert first_difference(printed, expected) is None


@pytest.mark.parametrize(
    ("printed", "expected", "difference"),
    [
        ("1 2", "2 1", "line 1 is '1 2', not '2 1'"),
        ("1\n2", "1\n3", "line 2 is '2', not '3'"),
        ("1 2", "1\n2", "line 1 is '1 2', not '1'"),
        ("1", "1\n2", "1 lines, not 2"),
        ("", "1", "0 lines, not 1"),
        ("1000000008", "1000000007", "line 1 is '1000000008', not '1000000007'"),
        ("1000000007.5", "1000000007", "line 1 is '1000000007.5', not '1000000007'"),
        ("0.3334", "0.3333", "line 1 is '0.3334', not '0.3333'"),
        ("YES", "yes", "line 1 is 'YES', not 'yes'"),
        ("1_000", "1000", "line 1 is '1_000', not '1000'"),
        ("٣", "3", "line 1 is '٣', not '3'"),
        ("inf", "1e400", "line 1 is 'inf', not '1e400'"),
    ],
)
def test_another_output(printed: str, expected: str, difference: str) -> None:
    assert first_difference(printed, expected) == difference


@given(st.text(), st.text())
def test_any_two_texts_can_be_compared(printed: str, expected: str) -> None:
    assert first_difference(printed, printed) is None
    same = first_difference(printed, expected) is None
    assert same == (first_difference(f"{printed}\n", f" {expected}") is None)
    if printed.split() != expected.split() and not any(character.isdigit() for character in expected):
        assert not same


@pytest.mark.parametrize("piece", ["9", "9 ", "9\n", "1e", ".", "-", " "])
def test_an_eighth_of_a_megabyte_takes_linear_time(piece: str) -> None:
    text = piece * (125_000 // len(piece))
    started = time.perf_counter()
    assert first_difference(text, text) is None
    assert first_difference(f"{text}0 1", f"{text}0 2") is not None
    assert time.perf_counter() - started < 10.0
