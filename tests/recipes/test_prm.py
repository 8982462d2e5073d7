"""recipes/prm: the score of each step stands where the step ends, by a real server of a tiny process model."""

from __future__ import annotations

import re

import pytest

from tests.recipes.conftest import ServedRecipe


@pytest.mark.slow
@pytest.mark.vllm
def test_the_recipe_prints_each_step_with_its_score_below(served_recipe: ServedRecipe) -> None:
    printed = served_recipe("prm")
    lines = [line for line in printed.splitlines() if line and not line.startswith("response")]
    assert lines[::2] == [
        "She saves 6 * 7 = 42 euros.",
        "She spends 2, so 42 - 2 = 40 are left.",
        "The answer is \\boxed{40}.",
        "She saves 6 + 7 = 13 euros.",
        "Take away 2: 13 - 2 = 11 €.",
        "The answer is \\boxed{11}.",
        "\\boxed{40}",
    ]
    scores = [re.fullmatch(r"    (0\.\d{4}) at token \d+", line) for line in lines[1::2]]
    assert None not in scores
    assert len({score[1] for score in scores if score}) > 3
