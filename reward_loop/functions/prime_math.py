r"""Rule of the NuminaMath data sets: the last \boxed answer, else the announced one, is equal to the truth. 1 or 0."""

from __future__ import annotations

import re

from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.isolated import isolated
from reward_loop.functions.latex_answer import last_boxed
from reward_loop.functions.symbolic_answer import same_answer

_TAIL_CHARS = 300
_ANNOUNCED = re.compile(r"answer(?:\s*[:=]|\s+is)\s*:?([^\n]+)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\.(?:\s|\Z)")
_NUMBER = re.compile(r"-?[0-9][0-9.,]*(?:/[0-9]+)?")


# A contrived identity keeps sympy busy for a minute: x + ((x+y+z+w)/(a+b+x))^12 (\frac{\sin x}{\cos x} - \tan x) for x.
@isolated("process")
def compute_score(solution_str: str, ground_truth: str | float) -> float:
    """1.0 if the answer is equal to the ground truth as text or as mathematics, else 0.0."""
    truth = truth_text(ground_truth)
    answer = extract_answer(solution_str)
    return float(answer is not None and same_answer(answer, truth))


def extract_answer(text: str) -> str | None:
    r"""The last \boxed, else what follows the last "answer is", else the last number, of the last 300 characters."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    tail = text[-_TAIL_CHARS:]
    announced: list[str] = _ANNOUNCED.findall(tail)
    if announced:
        return _SENTENCE_END.split(announced[-1], maxsplit=1)[0].strip(" *$")
    numbers: list[str] = _NUMBER.findall(tail)
    return numbers[-1].rstrip(".,") if numbers else None
