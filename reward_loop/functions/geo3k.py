r"""Rule of Geometry3K: 0.9 for the right \boxed answer, 0.1 for the form `<think>...</think>...\boxed{...}...`."""

from __future__ import annotations

from reward_loop.functions.ground_truth import truth_text
from reward_loop.functions.isolated import isolated
from reward_loop.functions.latex_answer import last_boxed
from reward_loop.functions.symbolic_answer import same_answer


# A contrived identity keeps sympy busy for a minute: x + ((x+y+z+w)/(a+b+x))^12 (\frac{\sin x}{\cos x} - \tan x) for x.
@isolated("process")
def compute_score(solution_str: str, ground_truth: str | float, format_score: float = 0.1) -> float:
    """Accuracy and form weighted as (1 - format_score) : format_score; between 0 and 1."""
    truth = truth_text(ground_truth)
    answer = last_boxed(solution_str)
    accuracy = answer is not None and same_answer(answer, truth)
    return (1.0 - format_score) * accuracy + format_score * has_form(solution_str)


def has_form(text: str) -> bool:
    r"""Whether all of the text is `<think>...</think>...\boxed{...}...`."""
    # Searches, not one pattern of four `.*`: that would take cubic time on a text that has the tags and no box.
    thought = text.find("</think>", len("<think>")) if text.startswith("<think>") else -1
    box = text.find(r"\boxed{", thought) if thought >= 0 else -1
    return box >= 0 and text.rfind("}") > box
