r"""Rule of the MATH data set: the last \boxed answer equals the truth, as normalised text. 1 or 0."""

from __future__ import annotations

from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.latex_answer import last_boxed, same_form


def compute_score(solution_str: str, ground_truth: str | float) -> float:
    r"""1.0 if the last \boxed answer has the same normal form as the ground truth, else 0.0."""
    truth = truth_text(ground_truth)
    answer = last_boxed(solution_str)
    return float(answer is not None and same_form(answer, truth))
