"""recipes/custom_function and recipes/custom_manager print the tables that their READMEs show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.mark.parametrize("recipe", ["custom_function", "custom_manager"])
def test_a_recipe_prints_the_table_of_its_readme(recipe: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(RECIPES / recipe / "run.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    shown = (RECIPES / recipe / "README.md").read_text("utf-8").split("```text\n")[1].split("```")[0]
    assert ended.stdout == shown
