"""Tests that call one function of a program: the form `fn_name` of APPS, TACO, LeetCode and verl.

A result is right if it equals the expected value once tuples are lists and keys of mappings are text, as JSON has them; an
expected list of one element may stand for that element, as APPS writes it. What is no plain data is never right, for its
`==` would be the program's. JSON has no integer keys, so an argument whose keys are all integers as text had such ones.
"""

from __future__ import annotations

import json
from typing import Any

from reward_loop.errors import DataError

IMPORTS = """\
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
from bisect import *
from math import *
from builtins import pow
import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, sys
"""
"""What the sites that these tasks come from have imported before a solution."""

ENTRY = "reward_loop_entry"

JUDGE = f"""\
import json
PLAIN = (bool, int, float, str, bytes, set, type(None))
def as_json(value):
    if type(value) in (list, tuple):
        return [as_json(part) for part in value]
    if type(value) is dict:
        return {{key if type(key) is str else json.dumps(key): as_json(part) for key, part in value.items()}}
    if type(value) not in PLAIN:
        raise TypeError("a result of type " + type(value).__name__ + " is no plain data")
    return value
def with_integer_keys(argument):
    if type(argument) is dict and all(key.removeprefix("-").isdecimal() for key in argument):
        return {{int(key): value for key, value in argument.items()}}
    return argument
def reward_loop_judge(case):
    arguments, wanted = json.loads(case)
    got = as_json({ENTRY}(*map(with_integer_keys, arguments)))
    if got != wanted and not (type(wanted) is list and len(wanted) == 1 and got == wanted[0]):
        raise AssertionError("returned " + repr(got)[:80] + ", not " + repr(wanted)[:80])
"""
"""Runs beside the tests, out of the program's reach."""


def entry(name: str) -> str:
    """Return source that makes the function `name`, or the method of `class Solution`, callable as ENTRY."""
    return (
        f"\ndef {ENTRY}(*arguments):\n"
        "    owner = globals().get('Solution')\n"
        f"    return (getattr(owner(), {name!r}) if hasattr(owner, {name!r}) else globals()[{name!r}])(*arguments)\n"
    )


def call(given: Any, wanted: Any) -> str:
    """Return the test snippet of one call.

    `given` is a list of arguments, and `wanted` the value; or both are text: a JSON value per line, and the JSON value.
    """
    if isinstance(given, str):
        arguments: list[Any] = [_from_json(line) for line in given.split("\n") if line.strip()]
        wanted = _from_json(wanted) if isinstance(wanted, str) else wanted
    elif isinstance(given, list):
        arguments = given
    else:
        raise DataError(f"the input {str(given)[:80]!r} of a test with fn_name is neither a list of arguments nor JSON lines")
    try:
        return f"reward_loop_judge({json.dumps([arguments, wanted])!r})"
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"the test {str(given)[:80]!r} of a function can't be written as JSON: {error}") from error


def _from_json(text: str) -> Any:
    """A text that is no JSON stands for itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
