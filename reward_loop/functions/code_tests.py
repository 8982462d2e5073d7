"""The ground truths of code rewards: what their data sets write, and the tests that follow from it.

    inputs, outputs                                          verl, PRIME, APPS, TACO, codeforces: input and output of programs
    inputs, outputs, fn_name                                 the same: calls of one function (see code_calls)
    public_tests, private_tests, generated_tests             CodeContests: {"input": […], "output": […]} each
    prompt, test, entry_point                                HumanEval
    test_list, challenge_test_list, test_setup_code,         MBPP: assert statements
      test_imports

Each is a mapping or its JSON text. Invariant: another form is a DataError that says which forms there are.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import DataError
from reward_loop.functions import code_calls
from reward_loop.functions.code_answer import after, completed, preamble, program_in

_CONTESTS = ("public_tests", "private_tests", "generated_tests")
_FORMS = (
    'it must be a mapping, or its JSON text, such as {"inputs": […], "outputs": […]}, with "fn_name" where a function is called; '
    '{"public_tests": {"input": […], "output": […]}}; {"prompt", "test", "entry_point"}; or {"test_list": ["assert …"]}'
)
_CALLED = re.compile(r"(?<![\w.])([^\W\d]\w*+)[ \t]*+\(")


@dataclass(frozen=True, slots=True)
class PrintTest:
    """A run of a whole program: what it reads, and what it should print."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True)
class PrintTests:
    """Runs of a whole program."""

    tests: tuple[PrintTest, ...]

    def program(self, response: str) -> str | None:
        """Return the program of a response; None if it has no code."""
        return program_in(response)


@dataclass(frozen=True, slots=True)
class SnippetTests:
    """Snippets, run after `setup`, that call what a program defines. `before` and `behind` are put around the program."""

    tests: tuple[str, ...]
    setup: str
    before: str = ""
    behind: str = ""

    def program(self, response: str) -> str | None:
        """Return the program of a response; None if it has no code."""
        code = program_in(response)
        return None if code is None else f"{after(self.before, code) if self.before else code}\n{self.behind}"


@dataclass(frozen=True, slots=True)
class CompletionTests:
    """Snippets that call the function which a response completes."""

    tests: tuple[str, ...]
    setup: str
    prompt: str
    entry_point: str

    def program(self, response: str) -> str | None:
        """Return the program of a response; None if it has no code."""
        return completed(self.prompt, self.entry_point, response)


Tests = PrintTests | SnippetTests | CompletionTests


def tests_of(ground_truth: object) -> Tests:
    """Read a ground truth; DataError unless it has one of the forms above and a test."""
    truth = _mapping(ground_truth)
    tests: Tests
    if "inputs" in truth:
        tests = _pairs(truth)
    elif any(name in truth for name in _CONTESTS):
        tests = _contests(truth)
    elif "entry_point" in truth and "test" in truth:
        tests = _human_eval(truth)
    elif "test_list" in truth:
        tests = _mbpp(truth)
    else:
        raise _malformed(f"has the keys {sorted(map(str, truth))[:8]}")
    if not tests.tests:
        raise _malformed("has no tests, so that any program would pass")
    return tests


def _pairs(truth: Mapping[str, Any]) -> PrintTests | SnippetTests:
    inputs, outputs = _list(truth, "inputs"), _list(truth, "outputs")
    if len(inputs) != len(outputs):
        raise _malformed(f"has {len(inputs)} inputs for {len(outputs)} outputs")
    name = truth.get("fn_name")
    if name is None:
        return PrintTests(tuple(map(_print_test, inputs, outputs)))
    calls = tuple(map(code_calls.call, inputs, outputs))
    return SnippetTests(calls, code_calls.JUDGE, code_calls.IMPORTS, code_calls.entry(_name(name, "fn_name")))


def _contests(truth: Mapping[str, Any]) -> PrintTests:
    tests: list[PrintTest] = []
    for part in (truth.get(name) or {} for name in _CONTESTS):
        if not isinstance(part, Mapping):
            raise _malformed(f"has {str(part)[:80]!r} where tests should be")
        inputs, outputs = (_list(part, name) if name in part else [] for name in ("input", "output"))
        if len(inputs) != len(outputs):
            raise _malformed(f"has {len(inputs)} inputs for {len(outputs)} outputs")
        tests += map(_print_test, inputs, outputs)
    return PrintTests(tuple(tests))


def _human_eval(truth: Mapping[str, Any]) -> CompletionTests:
    prompt, test = _text(truth, "prompt"), _text(truth, "test")
    entry_point = _name(truth["entry_point"], "entry_point")
    # The prompt's own helpers, for a test that calls them: a program could define them as it likes.
    setup = f"{preamble(prompt, entry_point)}\n{test}\n{_declared(entry_point)}"
    return CompletionTests((f"check({entry_point})",), setup, prompt, entry_point)


def _mbpp(truth: Mapping[str, Any]) -> SnippetTests:
    tests = _list(truth, "test_list") + _list(truth, "challenge_test_list")
    imports, prepared = _list(truth, "test_imports"), _text(truth, "test_setup_code")
    if bad := [part for part in tests + imports if not isinstance(part, str)]:
        raise _malformed(f"has {str(bad[0])[:80]!r} where Python source should be")
    called = [name for test in tests for name in _CALLED.findall(test)]
    setup = "\n".join([*imports, *(map(_declared, called[:1]) if all(hasattr(builtins, name) for name in called) else ())])
    # What prepares the tests may use what the program has to define, so that it is a part of each.
    return SnippetTests(tuple(f"{prepared}\n{test}" if prepared else test for test in tests), setup)


def _declared(name: str) -> str:
    """Return the declaration without which a program's function would not take a builtin's name."""
    return f"def {name}(): pass" if hasattr(builtins, name) else ""


def _mapping(ground_truth: object) -> Mapping[str, Any]:
    truth: Any = ground_truth
    if isinstance(truth, str):
        try:
            truth = json.loads(truth)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"{truth[:80]!r} is no JSON ({error})") from error
    if not isinstance(truth, Mapping):
        raise _malformed(f"{str(truth)[:80]!r} is no mapping")
    return truth


def _list(truth: Mapping[str, Any], name: str) -> list[Any]:
    value = _listed(truth.get(name))
    if value is not None and not isinstance(value, list | tuple):
        raise _malformed(f"has {name} = {str(value)[:80]!r}, which is no list")
    return list(value or ())


def _listed(value: Any) -> Any:
    """A list where an array came, as pandas reads lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def _text(truth: Mapping[str, Any], name: str) -> str:
    value = truth.get(name) or ""
    if not isinstance(value, str):
        raise _malformed(f"has {name} = {str(value)[:80]!r}, which is no text")
    return value


def _name(value: object, key: str) -> str:
    if not (isinstance(value, str) and value.isidentifier()):
        raise _malformed(f"has {key} = {value!r}, which is no name of a function")
    return value


def _print_test(given: Any, expected: Any) -> PrintTest:
    return PrintTest(_lines(given), _lines(expected))


def _lines(value: Any) -> str:
    """A text, or a list of its lines."""
    lines = [value] if isinstance(value, str) else _listed(value)
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str | int | float) for line in lines):
        raise _malformed(f"has the input or output {str(value)[:80]!r}, which is neither a text nor a list of lines")
    return "\n".join(map(str, lines))


def _malformed(what: str) -> DataError:
    return DataError(f"the ground truth of a code reward {what}; {_FORMS}")
