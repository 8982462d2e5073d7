"""Whether what a program printed is what a test expects, by the words of each line.

Blank lines and the width of white space don't count; order and upper case do. Where a word differs, both must be numbers:
equal ones (3 and 3.0), or within a relative 1e-5 or an absolute 1e-8 where the expected one has a point or an exponent, so
that no integer passes for its neighbour.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST_NUMBER = 400


def same_output(printed: str, expected: str) -> bool:
    """Whether the two agree, line by line and word by word."""
    return first_difference(printed, expected) is None


def first_difference(printed: str, expected: str) -> str | None:
    """Return one line on where the two differ first; None if they agree."""
    got, wanted = _lines(printed), _lines(expected)
    for number, (line, other) in enumerate(zip(got, wanted, strict=False), start=1):
        if len(line) != len(other) or not all(map(_same_word, line, other)):
            return f"line {number} is {_shown(line)}, not {_shown(other)}"
    return None if len(got) == len(wanted) else f"{len(got)} lines, not {len(wanted)}"


def _lines(text: str) -> list[list[str]]:
    return [words for line in text.split("\n") if (words := line.split())]


def _shown(words: list[str]) -> str:
    line = " ".join(words[:40])
    return repr(line if len(line) <= 60 else line[:60] + "…")


def _same_word(got: str, wanted: str) -> bool:
    if got == wanted:
        return True
    if max(len(got), len(wanted)) > _LONGEST_NUMBER or not (_NUMBER.fullmatch(got) and _NUMBER.fullmatch(wanted)):
        return False
    exact, near = Decimal(got), Decimal(wanted)
    inexact = not wanted.lstrip("+-").isdigit()
    return exact == near or (inexact and math.isclose(float(exact), float(near), rel_tol=1e-5, abs_tol=1e-8))
