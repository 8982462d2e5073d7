"""Rule of Search-R1 (arXiv:2503.09516): exact match of the last <answer>. 1 or 0; a quarter of it for tag spam.

Only the response is graded: an <answer> in the prompt's instructions is not among the tags counted.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping

from reward_loop.errors import DataError
from reward_loop.functions.ground_truth import truth_text

_OPEN, _CLOSE = "<answer>", "</answer>"
_MAX_TAGS = 10
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def compute_score(solution_str: str, ground_truth: Mapping[str, object], score: float = 1.0, format_score: float = 0.0) -> float:
    """`score` if the last <answer> equals any of ground_truth["target"] as SQuAD compares, else `format_score`.

    0.0 without an answer; `score` / 4 where more than ten opening or closing tags try their luck.
    """
    targets = {squad_form(target) for target in _targets(ground_truth)}
    answer = last_answer(solution_str)
    if answer is None:
        return 0.0
    if squad_form(answer) not in targets:
        return format_score
    spam = max(solution_str.count(_OPEN), solution_str.count(_CLOSE)) > _MAX_TAGS
    return score / 4 if spam else score


def last_answer(text: str) -> str | None:
    """Text between the last closing tag and the opening one before it, or None."""
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(_OPEN) : end].strip() if start >= 0 else None


def squad_form(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces; a text that is nothing else ("The") stays itself."""
    words = _ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()
    return " ".join(words) or text.strip().lower()


def _targets(ground_truth: object) -> list[str]:
    target: object = ground_truth.get("target") if isinstance(ground_truth, Mapping) else None
    targets: list[object] = [target]
    if isinstance(target, Iterable) and not isinstance(target, str):
        targets = list(target)
    if target is None or not targets:
        raise DataError(f"the ground truth {ground_truth!r} has no target; give {{'target': text or list of texts}}")
    return [truth_text(text) for text in targets]
