"""Ground truths of the code data sets are read in each of their forms, and refused in any other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.functions.code_tests import CompletionTests, PrintTest, PrintTests, SnippetTests
from reward_loop.functions.code_tests import tests_of as read

HUMAN_EVAL = {
    "prompt": "def helper(x):\n    return x\n\ndef f(x):\n    '''Add 1.'''\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
    "entry_point": "f",
}


@pytest.mark.parametrize(
    "truth",
    [
        {"inputs": ["1\n", "2\n"], "outputs": ["1", "4"]},
        {"inputs": [["1", ""], ["2", ""]], "outputs": [["1"], [4]]},
        {"inputs": np.array(["1\n", "2\n"]), "outputs": np.array([["1"], ["4"]])},
        {"inputs": ("1\n", "2\n"), "outputs": ("1", "4"), "fn_name": None},
        json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1", "4"]}),
        {"public_tests": {"input": ["1\n"], "output": ["1"]}, "generated_tests": {"input": ["2\n"], "output": ["4"]}},
        {"public_tests": {"input": ["1\n", "2\n"], "output": ["1", "4"]}, "private_tests": None, "generated_tests": {}},
    ],
)
def test_inputs_and_outputs_are_runs_of_a_program(truth: object) -> None:
    assert read(truth) == PrintTests((PrintTest("1\n", "1"), PrintTest("2\n", "4")))


def test_a_name_of_a_function_makes_them_calls() -> None:
    tests = read({"inputs": [[1, [2]], "1\n[2]"], "outputs": [3, "3"], "fn_name": "f"})
    assert isinstance(tests, SnippetTests)
    assert tests.tests == ("reward_loop_judge('[[1, [2]], 3]')",) * 2
    program = tests.program("```python\nfrom __future__ import annotations\ndef f(a, b): return a\n```")
    assert program is not None
    compile(program, "program", "exec")


def test_human_eval_calls_check_with_the_function() -> None:
    tests = read(HUMAN_EVAL)
    assert isinstance(tests, CompletionTests)
    assert tests.tests == ("check(f)",)
    assert "def helper" in tests.setup
    assert "def check" in tests.setup
    assert "def f(" not in tests.setup
    assert read(json.dumps(HUMAN_EVAL)) == tests


def test_mbpp_has_assertions() -> None:
    truth = {
        "test_list": ["assert f(1) == 1"],
        "challenge_test_list": ["assert f(2) == 2"],
        "test_imports": ["import math"],
        "test_setup_code": "x = 1",
    }
    tests = read(truth)
    assert tests == SnippetTests(("x = 1\nassert f(1) == 1", "x = 1\nassert f(2) == 2"), "import math")


def test_only_the_function_under_test_may_have_a_builtin_s_name() -> None:
    assert read({"test_list": ["assert sum(1, 2) == 3"]}) == SnippetTests(("assert sum(1, 2) == 3",), "def sum(): pass")
    assert read({"test_list": ["assert set(f(1)) == {1}"]}) == SnippetTests(("assert set(f(1)) == {1}",), "")


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (None, "'None' is no mapping"),
        (3, "'3' is no mapping"),
        ("42", "'42' is no mapping"),
        ("def f(): pass", r"'def f\(\): pass' is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ({}, r"has the keys \[\]"),
        ({"target": "x"}, r"has the keys \['target'\]"),
        ({"inputs": ["1"], "outputs": []}, "has 1 inputs for 0 outputs"),
        ({"inputs": ["1"]}, "has 1 inputs for 0 outputs"),
        ({"inputs": [], "outputs": []}, "has no tests"),
        ({"inputs": "1", "outputs": ["1"]}, "has inputs = '1', which is no list"),
        ({"inputs": [{"a": 1}], "outputs": ["1"]}, "neither a text nor a list of lines"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "a.b"}, "has fn_name = 'a.b', which is no name"),
        ({"public_tests": {"input": ["1"], "output": []}}, "has 1 inputs for 0 outputs"),
        ({"public_tests": ["1"]}, r"has .*where tests should be"),
        ({"public_tests": {}}, "has no tests"),
        ({**HUMAN_EVAL, "entry_point": "f(x)"}, r"has entry_point = 'f\(x\)'"),
        ({**HUMAN_EVAL, "test": ["assert f(1)"]}, "has test = .*which is no text"),
        ({"test_list": []}, "has no tests"),
        ({"test_list": [["assert f(1)"]]}, "where Python source should be"),
    ],
)
def test_another_form_is_refused_with_the_forms_there_are(truth: object, message: str) -> None:
    with pytest.raises(
        DataError, match=rf'ground truth of a code reward .*{message}.*"inputs".*"public_tests".*"entry_point".*"test_list"'
    ):
        read(truth)


@pytest.mark.parametrize(
    ("given_", "wanted", "message"),
    [
        (3, 1, "the input '3' of a test with fn_name is neither a list of arguments nor JSON lines"),
        ([{1, 2}], 1, "can't be written as JSON"),
    ],
)
def test_arguments_that_are_no_data_are_refused(given_: Any, wanted: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read({"inputs": [given_], "outputs": [wanted], "fn_name": "f"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
truths = st.dictionaries(
    st.sampled_from(
        ["inputs", "outputs", "fn_name", "public_tests", "prompt", "test", "entry_point", "test_list", "test_setup_code"]
    ),
    json_values,
)


@given(st.one_of(truths, truths.map(json.dumps), json_values))
def test_any_data_is_tests_or_a_data_error(truth: object) -> None:
    try:
        tests = read(truth)
    except DataError:
        return
    assert tests.tests
    assert tests.program("no code") is None
