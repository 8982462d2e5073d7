"""Rule of GSM8K: the final number equals the true one. 1 or 0.

Numbers compare by exact decimal value. What is only a part of an expression (7/14, 20-2, 3e5, 2 million, 10:30) is no
number, and ASCII digits only are read, so that a wrong answer is never taken for a right one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.ground_truth import truth_text

_TAIL_CHARS = 300
_NUMBER = re.compile(r"[-\u2212+]?(?:\\?\$)?[-\u2212]?\.?[0-9](?:[0-9]|[.,](?=[0-9]))*+")
_AFTER_MARKER = re.compile(r"[ \t]*+(" + _NUMBER.pattern + ")")
_PLAIN = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]+)?")
_GOES_ON = re.compile(
    r"[\d_]|[eE][-+]?\d|[ \t]*(?:[*/^=:-][ \t]*[0-9(]|\+|(?:hundred|thousand|[mbtr]+illion)(?![a-z]))", re.IGNORECASE
)
_COMES_FROM = re.compile(r"(?:[\w)][ \t]*[*/^]|[0-9)][ \t]*[-\u2212+]|[0-9]:)[ \t]*\Z|\w\Z")
_CONTEXT_CHARS = 8
_WINDOW_CHARS = 80


def compute_score(
    solution_str: str,
    ground_truth: str | float,
    method: Literal["strict", "flexible"] = "strict",
    marker: str = "####",
    score: float = 1.0,
    format_score: float = 0.0,
) -> float:
    """`score` for the right number, `format_score` for a wrong one, 0.0 for none.

    strict: the last `<marker> n` within the last 300 characters. flexible: the last number of the text.
    """
    truth = _truth(ground_truth)
    if method == "strict" and marker:
        answer = _strict(solution_str[-_TAIL_CHARS:], marker)
    elif method == "flexible":
        answer = _flexible(solution_str)
    else:
        raise ConfigError(f"gsm8k has no method={method!r} with marker={marker!r}; use 'strict' with a marker or 'flexible'")
    if answer is None:
        return 0.0
    return score if answer == truth else format_score


def _truth(ground_truth: str | float) -> Decimal:
    text = truth_text(ground_truth)
    number = _decimal(text.removesuffix("."))
    if number is None:
        raise DataError(f"the GSM8K ground truth {text[-80:]!r} is no plain number; keep only what follows '####'")
    return number


def _strict(tail: str, marker: str) -> Decimal | None:
    """The number after the last marker that a number follows."""
    end = len(tail)
    while (start := tail.rfind(marker, 0, end)) >= 0:
        if found := _AFTER_MARKER.match(tail, start + len(marker)):
            return None if _GOES_ON.match(tail, found.end()) else _decimal(found[1])
        end = start
    return None


def _flexible(text: str) -> Decimal | None:
    last = _last_number(text[-_WINDOW_CHARS:])
    if last is None or last.start() <= _CONTEXT_CHARS:  # perhaps cut off by the window
        last = _last_number(text)
    if last is None or _GOES_ON.match(last.string, last.end()):
        return None
    before = last.string[max(0, last.start() - _CONTEXT_CHARS) : last.start()]
    return None if _COMES_FROM.search(before) else _decimal(last[0])


def _last_number(text: str) -> re.Match[str] | None:
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last


def _decimal(token: str) -> Decimal | None:
    text = token.replace("\u2212", "-").replace("\\", "").replace("$", "").removeprefix("+")
    return Decimal(text.replace(",", "")) if text.strip("-") and _PLAIN.fullmatch(text) else None
