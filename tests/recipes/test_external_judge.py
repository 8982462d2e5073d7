"""recipes/external_judge: the table of its README, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "external_judge"


def test_the_recipe_prints_the_table_of_its_readme(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", str(RECIPE / "run.py")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    shown = (RECIPE / "README.md").read_text("utf-8").split("```text\n")[1].split("```")[0]
    assert ended.stdout == shown
    assert ended.stderr == ""
