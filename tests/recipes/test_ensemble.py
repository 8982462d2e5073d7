"""recipes/ensemble: three real servers, three rewards made of what they say, and the samples that these take as best."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import fmean, pstdev

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "ensemble"


@pytest.mark.slow
@pytest.mark.vllm
def test_the_recipe_prints_rewards_that_follow_from_the_models_scores_and_the_best_of_each(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPE / "run.py")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert ended.returncode == 0, ended.stderr
    groups: dict[str, list[list[str]]] = {}
    for line in ended.stdout.splitlines():
        if line.startswith("│"):
            problem, _, *cells = (cell.strip() for cell in line.strip("│").split("│"))
            groups.setdefault(problem, []).append(cells)
    assert [len(samples) for samples in groups.values()] == [4] * 4
    for samples in groups.values():
        for cells in samples:
            scores = [float(cell) for cell in cells[:3]]
            disagreement, *rewards = (float(cell.rstrip("*")) for cell in cells[3:])
            wanted = [fmean(scores), min(scores), fmean(scores) - pstdev(scores)]
            assert disagreement == pytest.approx(pstdev(scores), abs=0.02)
            assert rewards == pytest.approx(wanted, abs=0.03)
        for way in (4, 5, 6):
            (best,) = (cells[way] for cells in samples if cells[way].endswith("*"))
            assert float(best.rstrip("*")) == max(float(cells[way].rstrip("*")) for cells in samples)
