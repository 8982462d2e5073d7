r"""Rule of DAPO (arXiv:2503.14476): the last `Answer: x` of the last 300 characters. +1 or -1.

Answers compare in the normal form of Minerva (Lewkowycz et al., 2022, appendix D).
"""

from __future__ import annotations

import re
from typing import Any

from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.latex_answer import last_boxed

INVALID = "[INVALID]"
"""The `pred` of a response without an answer; never right."""

_TAIL_CHARS = 300
_BOX_TAIL_CHARS = 100
_ANSWER = re.compile(r"answer\s*:\s*([^\n]+)", re.IGNORECASE)

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    (r"\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)
_REMOVED_WORDS = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", r"\ldots", "sue", "points"),
    *("feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples"),
)
_REMOVED_LATEX = (
    *(r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}"),
    *(r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
_MATH = re.compile(r"\$([^$]*)\$")
_WRAPPED = re.compile(r"\\(?:text|textbf|overline)\{([^}]*)\}")
_BARE_FRACTION = re.compile(r"frac([^{])(.)")
_BARE_ROOT = re.compile(r"sqrt([^{])")


def compute_score(solution_str: object, ground_truth: str | float, strict_box_verify: bool = False) -> dict[str, Any]:
    r"""{"score": 1.0 | -1.0, "acc": bool, "pred": str}; `pred` is the normalised answer or "[INVALID]".

    With `strict_box_verify`, the last \boxed of the last 100 characters is the answer instead.
    """
    truth = minerva_form(truth_text(ground_truth))
    tail = solution_str[-_TAIL_CHARS:] if isinstance(solution_str, str) else ""
    answer = last_boxed(tail[-_BOX_TAIL_CHARS:]) if strict_box_verify else _last_answer(tail)
    pred = INVALID if answer is None else minerva_form(answer)
    correct = answer is not None and pred != "" and pred == truth
    return {"score": 1.0 if correct else -1.0, "acc": correct, "pred": pred}


def _last_answer(tail: str) -> str | None:
    answers: list[str] = _ANSWER.findall(tail)
    return answers[-1] if answers else None


def minerva_form(answer: str) -> str:
    """The answer after Minerva's substitutions: what follows the last "=", without units, markup and digit commas."""
    text = answer.rsplit("=", 1)[-1]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for expression in (*_REMOVED_WORDS, *_REMOVED_LATEX):
        text = text.replace(expression, "")
    if math := _MATH.search(text):
        text = math[1]
    text = _WRAPPED.sub(r"\1", text)
    if (boxed := last_boxed(text)) is not None:
        text = boxed
    text = _BARE_FRACTION.sub(r"frac{\1}{\2}", text)
    text = _BARE_ROOT.sub(r"sqrt{\1}", text).replace("$", "")
    without_commas = text.replace(",", "")
    return (without_commas if without_commas.isdecimal() else text).strip()
