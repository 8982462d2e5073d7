"""LaTeX answers: the last boxed one of a text, and the form in which two spellings of one answer are the same text.

Both take linear time. The normal form follows the equivalence of the MATH data set (Hendrycks et al., 2021).
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_BRACE_OR_ESCAPE = re.compile(r"\\.|[{}]", re.DOTALL)
_UNBRACED = re.compile(r"[^\s$]+")

_APART = re.compile(r"(?<=[0-9])\s*(?:(?:\\q?quad(?![a-zA-Z])|~)\s*)+(?=[0-9])")
_DROPPED = re.compile(
    r"\\(?:left|right)(?![a-zA-Z])"
    r"|(?<!\\)\\[!,;: ]|\\q?quad(?![a-zA-Z])|~"  # spacing commands
    r"|\^(?:\\circ(?![a-zA-Z])|\{\\circ\})|°"
    r"|\\?[$%]"
)
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")  # escaped twice on the way through JSON
_SHORT_FRACTION_NAMES = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_WORD_COMMANDS = r"\\(?:text|mbox|textbf|mathrm|mathbf)"
_ONLY_WORDS = re.compile(_WORD_COMMANDS + r"\{([^{}]*)\}")
_TRAILING_UNIT = re.compile(
    rf"(?<=\S)\s?(?:{_WORD_COMMANDS}\{{\s[^{{}}]*|(?<=[0-9)}}]){_WORD_COMMANDS}\{{[a-zA-Z]{{2}}[^{{}}]*)\}}(?:\^\{{?[23]\}}?)?\Z"
)
# A space counts between two digits (1 2 is not 12) and where it ends a command (\pi r is not \pir).
_SPACE = re.compile(r"([0-9] (?=[0-9])|\\[a-zA-Z]+ (?=[a-zA-Z]))| ")
_PREFIX = re.compile(r"[a-zA-Z]{1,2}=([^=]+)")
_BARE_POINT = re.compile(r"(?<![0-9])\.(?=[0-9])")
_BARE_ROOT = re.compile(r"\\sqrt([0-9a-zA-Z])")
_BARE_NUMERATOR = re.compile(r"\\frac ?([0-9a-zA-Z]) ?(?=[0-9a-zA-Z{])")
_BARE_DENOMINATOR = re.compile(r"(\\frac\{[^{}]*\}) ?([0-9a-zA-Z])")
_SLASH = re.compile(r"(-?)([0-9]+)/([0-9]+)")
_NEGATIVE_NUMERATOR = re.compile(r"\\frac\{-([^{}+-]+)\}(\{[^{}]*\})")
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


def last_boxed(text: str) -> str | None:
    r"""Content of the last \boxed or \fbox, braces balanced; None without one or where it never closes."""
    start = max(text.rfind(r"\boxed"), text.rfind(r"\fbox"))
    box = _BOX.match(text, start) if start >= 0 else None
    if box is None:
        return None
    if not text.startswith("{", box.end()):
        bare = _UNBRACED.match(text, box.end())
        return bare[0].rstrip(".,") if bare else None
    depth = 0
    for brace in _BRACE_OR_ESCAPE.finditer(text, box.end()):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[box.end() + 1 : brace.start()].strip()
    return None


def same_form(candidate: str, truth: str) -> bool:
    """Whether both have the same normal form, and it is not empty."""
    form = normal_form(truth)
    return form != "" and normal_form(candidate) == form


def normal_form(answer: str) -> str:
    r"""The answer without what MATH does not grade: \left, spaces, units, percent, degrees, "x=", short fractions."""
    text = _DROPPED.sub("", _APART.sub(" ", _DOUBLED.sub(r"\\", answer.replace(r"{,}", ","))))
    text = " ".join(text.split()).removesuffix(".")
    text = _ONLY_WORDS.sub(r"\1", text) if _ONLY_WORDS.fullmatch(text) else _TRAILING_UNIT.sub("", text)
    text = _SPACE.sub(lambda space: space[1] or "", text.strip())
    if prefixed := _PREFIX.fullmatch(text):
        text = prefixed[1]
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    text = _BARE_POINT.sub("0.", text)
    return r"\frac{1}{2}" if text == "0.5" else _normal_fractions(text)


def _normal_fractions(text: str) -> str:
    r"""\frac12, \frac1{2}, \frac{1}2, \tfrac and 1/2 become \frac{1}{2}, a minus goes in front; \sqrt3 gets braces."""
    text = _BARE_ROOT.sub(r"\\sqrt{\1}", _SHORT_FRACTION_NAMES.sub(r"\\frac", text))
    text = _BARE_NUMERATOR.sub(r"\\frac{\1}", text)
    text = _BARE_DENOMINATOR.sub(r"\1{\2}", text)
    if slash := _SLASH.fullmatch(text):
        return rf"{slash[1]}\frac{{{slash[2]}}}{{{slash[3]}}}"
    if negative := _NEGATIVE_NUMERATOR.fullmatch(text):
        return rf"-\frac{{{negative[1]}}}{negative[2]}"
    return text
