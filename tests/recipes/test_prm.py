"""recipes/prm: the score of each step stands where the step ends, by a real server of a tiny process model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "prm"


@pytest.mark.vllm
def test_the_recipe_prints_each_step_with_its_score_below(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPE / "run.py")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line and not line.startswith("response")]
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
