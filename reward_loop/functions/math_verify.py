r"""Rule on the library math-verify: the last \boxed answer, else the announced one, is equal to the truth as mathematics. 1 or 0.

Invariants: a response ends as "correct", "wrong" or "unparseable" (its answer is missing or no mathematics); one that never ends
raises nothing here: the deadline of the grader process that this runs in ends it, so the library's own alarms, which work in
main threads only, are off. A truth that can't be parsed makes the sample Unscorable, whatever the response: the fault is not the
response's, and rewarding only those that spell it alike would favour nothing but their spelling.

Stricter than the library where it takes a wrong answer for a right one: another base (101_3 for 101_2), digits apart ("5 6" is
not 11), a word with the same letters (cat for act). As lax as the library: 0.3333333 is 1/3 (six decimals), 50% is 50 and 0.5,
units do not count, of an equation x = ... = 5 the last side is the answer, an expression (1+1) need not be worked out.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

from reward_loop.errors import ConfigError, Unscorable
from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.isolated import isolated
from reward_loop.functions.latex_answer import last_boxed, normal_form, same_form

try:
    _library: Any = import_module("math_verify")
except ImportError as error:
    raise ConfigError(f"the rule math_verify needs math-verify ({error}): pip install 'reward-loop[math]'") from error

# It warns of each time-out that is off, in every process.
logging.getLogger("math_verify").setLevel(logging.ERROR)

Verdict = Literal["correct", "wrong", "unparseable"]

_TAIL_CHARS = 300
_MAX_CHARS = 500
_BOLD = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(-])")
_DOLLARS = re.compile(r"\$+([^$]*)\$+")
_MIXED = re.compile(r"(?<![0-9.])([0-9]+)\s+([0-9]+)/([0-9]+)(?![0-9.])")
_THIN_SPACE = re.compile(r"(?<=[0-9])\\[,;:!](?=[0-9])")
_DIGITS_APART = re.compile(r"[0-9.](?:\s|~|\\ |\\q?quad(?![a-zA-Z]))+[0-9.]")
_BASE = re.compile(r"[0-9A-Z]\}?_(?:\{?(?:\\text\{)?)([0-9]+)")
_WORD = re.compile(r"[a-zA-Z]{3,}")


@isolated("process")
def compute_score(solution_str: str, ground_truth: str | float, float_rounding: int = 6) -> dict[str, Any]:
    """{"score": 1.0 | 0.0, "acc": bool, "pred": str, "verdict": Verdict}; `pred` is the answer as it was given, "" without one.

    Numbers that agree to `float_rounding` decimals are equal. Raises Unscorable for a truth that is no mathematics.
    """
    truth = _truth(truth_text(ground_truth))
    expressions = _truth_expressions(truth)
    answer = extract_answer(solution_str)
    verdict = _verdict(answer, truth, expressions, float_rounding)
    return {"score": float(verdict == "correct"), "acc": verdict == "correct", "pred": answer or "", "verdict": verdict}


def extract_answer(text: str) -> str | None:
    r"""The last \boxed if there is any, else what the library finds in the last 300 characters: LaTeX, else a number."""
    if r"\boxed" in text or r"\fbox" in text:
        return last_boxed(text)
    targets = [_library.LatexExtractionConfig(boxed_match_priority=-1), _library.ExprExtractionConfig()]
    found = _parsed(_BOLD.sub("", text[-_TAIL_CHARS:]), targets, extraction_mode="first_match")
    return next((answer for answer in found if isinstance(answer, str)), None)


def _verdict(answer: str | None, truth: str, truths: list[Any], float_rounding: int) -> Verdict:
    if not answer:
        return "unparseable"
    if same_form(answer, truth):
        return "correct"
    expressions = _expressions(answer)
    if not expressions:
        return "unparseable"
    if _base(answer) != _base(truth) and _base(answer) is not None:
        return "wrong"
    if _WORD.fullmatch(truth):
        return "correct" if normal_form(answer).lower() == truth.lower() else "wrong"
    return "correct" if _equal(truths, expressions, float_rounding) else "wrong"


def _truth(text: str) -> str:
    r"""The truth without \boxed or $ around it."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    dollars = _DOLLARS.fullmatch(text)
    return dollars[1].strip() if dollars else text


@lru_cache(maxsize=1024)
def _truth_expressions(truth: str) -> list[Any]:
    expressions = _expressions(truth)
    if not expressions:
        raise Unscorable(
            f"math-verify can't parse the ground truth {truth[:80]!r}; correct it, or give this data set another rule"
        )
    return expressions


def _expressions(answer: str) -> list[Any]:
    """What the library reads in the answer; nothing if it is no mathematics."""
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", _THIN_SPACE.sub("", answer.strip().rstrip(".")))
    if len(text) > _MAX_CHARS or _DIGITS_APART.search(text):
        return []
    target = _library.LatexExtractionConfig(boxed_match_priority=0)
    return _parsed(rf"\boxed{{{text}}}", [target], fallback_mode="no_fallback")


def _parsed(text: str, targets: list[Any], **modes: str) -> list[Any]:
    try:
        return list(_library.parse(text, targets, parsing_timeout=None, raise_on_error=True, **modes))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the parsers below raise anything on text that is no mathematics
        return []


def _equal(truths: list[Any], expressions: list[Any], float_rounding: int) -> bool:
    try:
        return bool(_library.verify(truths, expressions, float_rounding, timeout_seconds=None, raise_on_error=True))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - sympy raises anything where it can't compare, and what it can't is not shown to be equal
        return False


def _base(answer: str) -> str | None:
    """The base that a number names (101_2), None without one and for base 10."""
    found = _BASE.search(answer)
    return None if found is None or found[1] == "10" else found[1]


# A comparison loads parts of sympy. It is done once here, in the process that graders are forked from, and not in the time of
# each grader's first sample.
_equal(_expressions(r"\sqrt{2}x"), _expressions("x^2+1"), 6)
