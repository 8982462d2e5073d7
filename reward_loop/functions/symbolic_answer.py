r"""Equality of two mathematical answers: as text, element by element, then as expressions simplified by sympy.

The rules are those that the PRM800K grader is known for: a whole number must be given as that number and a fraction
reduced; brackets of tuples and intervals must agree. Own code, because the packaged grader (mathruler 0.1.0, which
declares no dependencies) calls `eval` on the answer, loses the brackets of \frac{x+1}{2} and x^{a+b}, compares floats,
takes R and r for one variable and 9**9**9 for an expression to compute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

from pylatexenc.latex2text import EnvironmentTextSpec, LatexNodes2Text, MacroTextSpec, get_default_latex_context_db
from pylatexenc.latexwalker import LatexWalkerError
from pylatexenc.macrospec import LatexContextDb

from reward_loop.functions.expression import equal_expressions
from reward_loop.functions.latex_answer import normal_form, same_form

_MAX_CHARS = 500
_MAX_NESTING = 20

_BETWEEN_ANSWERS = re.compile(r"\s*\\text\{\s*(?:or|and)\s*\}\s*|\s(?:or|and)\s")
_MIXED = re.compile(r"(?<![0-9.^_{a-zA-Z])([0-9]+) ?(?:\\frac\{([0-9]+)\}\{([0-9]+)\}|(?<= )([0-9]+)/([0-9]+))")
_TRAILING_UNIT = re.compile(
    r"(?<=[0-9)}])\s*(?:[ckm]m|degree|centimeter|kilometer|meter|mile|second|minute|hour|day|week|month|year|foot|feet|"
    r"inch|yard|dollar|cent|point|unit)(?:e?s)?(?:\^?[23])?\Z"
)
_TO_PLAIN = str.maketrans(
    {"{": "(", "}": ")", "·": "*", "⋅": "*", "×": "*", "∗": "*", "÷": "/", "−": "-"}  # noqa: RUF001 - what LaTeX means
)
_OPEN, _CLOSE = "([⦃", ")]⦄"
_NO_PARENTHESES = str.maketrans("", "", "() ")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_WHOLE = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_FRACTION = re.compile(r"-?[0-9]+/[0-9]+")

_WORDS = ("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "log", "ln", "exp", "pi")
_SYMBOLS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda", "mu", "nu", "rho"),
    *("sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Sigma", "Omega"),
    *("cdot", "times", "div", "infty", "cup"),
)
_FONTS = ("text", "textbf", "mathrm", "mathbf")

# What the libraries raise on text that is no LaTeX (pylatexenc also trips over its own feet) or no mathematics (sympy).
_NO_LATEX = (AttributeError, LookupError, TypeError, ValueError, LatexWalkerError)
_NO_MATHEMATICS = (ArithmeticError, NotImplementedError, TypeError, ValueError)


def same_answer(candidate: str, truth: str) -> bool:
    """Whether the two LaTeX answers are equal; what can't be read as mathematics must be equal as text."""
    if same_form(candidate, truth):
        return True
    if max(len(candidate), len(truth)) > _MAX_CHARS:
        return False
    return _same(_plain_text(candidate), _plain_text(truth))


def _same(candidate: str, truth: str) -> bool:
    for separator in "\u222a,":
        candidates, truths = _split(candidate, separator), _split(truth, separator)
        if max(len(candidates), len(truths)) > 1:
            return len(candidates) == len(truths) and all(map(_same, candidates, truths))
    if _is_tuple(candidate) or _is_tuple(truth):
        brackets_agree = (candidate[:1], candidate[-1:]) == (truth[:1], truth[-1:])
        return brackets_agree and _same(candidate[1:-1], truth[1:-1])
    return _same_element(candidate.strip(), truth.strip())


def _same_element(candidate: str, truth: str) -> bool:
    if candidate == truth or (truth.isalpha() and candidate.lower() == truth.lower()):
        return bool(truth)
    bare_candidate, bare_truth = candidate.translate(_NO_PARENTHESES), truth.translate(_NO_PARENTHESES)
    if _FRACTION.fullmatch(bare_candidate) and _FRACTION.fullmatch(bare_truth):
        return bare_candidate == bare_truth
    if _NUMBER.fullmatch(candidate) and _NUMBER.fullmatch(truth):
        return Decimal(candidate) == Decimal(truth)
    if _WHOLE.fullmatch(candidate) or _WHOLE.fullmatch(truth):
        return False
    try:
        return equal_expressions(candidate, truth)
    except _NO_MATHEMATICS:
        return False  # they differ as texts, and that is all that can be said


@lru_cache(maxsize=4096)
def _plain_text(latex: str) -> str:
    """The answer without LaTeX, every group in parentheses; with it where it can't be read."""
    text = normal_form(_BETWEEN_ANSWERS.sub(",", latex))
    text = _MIXED.sub(lambda m: f"({m[1]}+{m[2] or m[4]}/{m[3] or m[5]})", text)
    text = text.replace(r"\{", "⦃").replace(r"\}", "⦄")
    if "\\" in text and _nesting(text) <= _MAX_NESTING:
        text = _without_commands(text)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text).translate(_TO_PLAIN)
    return _TRAILING_UNIT.sub("", text.strip())


def _without_commands(latex: str) -> str:
    reader = LatexNodes2Text(
        latex_context=_latex_commands(), math_mode="text", keep_braced_groups=True, keep_braced_groups_minlen=0
    )
    try:
        return str(reader.latex_to_text(latex, tolerant_parsing=False))
    except _NO_LATEX:
        return latex  # its backslashes stay, so that it is compared as text only


@lru_cache(maxsize=1)
def _latex_commands() -> Any:
    """The commands that become text. All others stay, and with them no expression is read: none must be lost silently."""

    def arguments(node: Any, l2tobj: Any) -> list[str]:
        given = node.nodeargd.argnlist if node.nodeargd else ()
        return [l2tobj.nodelist_to_text([argument]) for argument in given if argument is not None]

    def fraction(node: Any, l2tobj: Any) -> str:
        numerator, denominator = arguments(node, l2tobj)
        return f"(({numerator})/({denominator}))"

    def root(node: Any, l2tobj: Any) -> str:
        *degree, radicand = arguments(node, l2tobj)
        return f"(({radicand})^(1/({degree[0][1:-1]})))" if degree else f" sqrt({radicand})"

    def kept(node: Any) -> str:
        return str(node.latex_verbatim())

    default = get_default_latex_context_db()
    commands = LatexContextDb()
    commands.add_context_category(
        "reward_loop",
        macros=[
            MacroTextSpec("frac", fraction),
            MacroTextSpec("sqrt", root),
            *(MacroTextSpec(word, f" {word} ") for word in _WORDS),
            *(default.get_macro_spec(symbol) for symbol in _SYMBOLS),
            *(MacroTextSpec(font, lambda node, l2tobj: "".join(arguments(node, l2tobj))) for font in _FONTS),
        ],
    )
    commands.set_unknown_macro_spec(MacroTextSpec("", kept))
    commands.set_unknown_environment_spec(EnvironmentTextSpec("", kept))
    return commands


def _is_tuple(text: str) -> bool:
    bracketed = text[:1] in tuple(_OPEN) and text[-1:] in tuple(_CLOSE)
    return bracketed and ("⦃" in text[0] or len(_split(text[1:-1], ",")) > 1)


def _split(text: str, separator: str) -> list[str]:
    """Parts of the text between the separators that stand outside all brackets."""
    return ["".join(part).strip() for part in _parts(text, separator)]


def _parts(text: str, separator: str) -> Iterator[list[str]]:
    part: list[str] = []
    depth = 0
    for char in text:
        depth += (char in _OPEN) - (char in _CLOSE)
        if char == separator and depth == 0:
            yield part
            part = []
        else:
            part.append(char)
    yield part


def _nesting(text: str) -> int:
    """The deepest level of braces."""
    depth = deepest = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        deepest = max(deepest, depth)
    return deepest
