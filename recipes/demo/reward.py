"""The demo's reward: mostly the right answer, a little for the asked-for form and for brevity.

What the dict holds besides "score" becomes the sample's extra info, and a plot in the report.
"""

from __future__ import annotations

from typing import Any

from reward_loop import default_compute_score

FORM = {"openai/gsm8k": "####", "lighteval/MATH": "\\boxed"}


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], free_chars: int = 400
) -> dict[str, float]:
    """Return the weighted sum and its parts, each from 0 to 1; brevity falls from `free_chars` to 0 at three times as many."""
    accuracy = default_compute_score(data_source=data_source, solution_str=solution_str, ground_truth=ground_truth)
    if isinstance(accuracy, dict):  # some rules report more than the number
        accuracy = accuracy["score"]
    form = float(FORM[data_source] in solution_str)
    brevity = min(1.0, max(0.0, (3 - len(solution_str) / free_chars) / 2))
    return {
        "score": 0.8 * accuracy + 0.1 * form + 0.1 * brevity,
        "accuracy": accuracy,
        "format": form,
        "brevity": brevity,
        f"accuracy, {extra_info['policy']} policy": accuracy,
    }
