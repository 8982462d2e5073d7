"""recipes/gsm8k: agreement with published labels, and what happens where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipes.gsm8k.run import main
from tests.recipes.conftest import RunHere

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / ".." / "shared" / "data" / "gsm8k" / "example_model_solutions.jsonl"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def solutions_file(folder: Path, **wrongly_labelled: bool) -> Path:
    """One question that every model answers rightly, with labels that say so unless told otherwise."""
    entry: dict[str, Any] = {"question": "What is six times seven?", "ground_truth": "It is 6 * 7.\nA: 42"}
    for model in MODELS:
        entry[model] = {"solution": "6 * 7 = 42\nA: 42", "is_correct": wrongly_labelled.get(f"in_{model}", True)}
    path = folder / "solutions.jsonl"
    path.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    return path


@pytest.mark.skipif(not SOLUTIONS.exists(), reason="needs ../shared/data/gsm8k beside the checkout")
def test_every_reward_agrees_with_its_published_label(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "recipes" / "gsm8k" / "run.py"), str(SOLUTIONS), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    table = [line.split() for line in ended.stdout.splitlines()]
    assert ["175b_verification", "1,319", "742", "1,319"] in table
    assert ["all", "5,276", "2,001", "5,276"] in table
    assert ended.stdout.endswith("5,276 of 5,276 rewards agree with the published labels\n")


def test_a_disagreement_is_listed_and_without_an_output_directory_nothing_is_left_behind(
    tmp_path: Path, run_here: RunHere
) -> None:
    ended = run_here(main, solutions_file(tmp_path, in_6b_verification=False))
    assert ended.code == 1
    assert "DISAGREES 6b_verification-0: reward 1.0 (ok ), label False, truth '42'" in ended.output
    assert ended.output.endswith("3 of 4 rewards agree with the published labels\n")
    assert [path.name for path in tmp_path.iterdir()] == ["solutions.jsonl"]


def test_a_missing_file_is_named(tmp_path: Path, run_here: RunHere) -> None:
    missing = tmp_path / "nothing.jsonl"
    assert run_here(main, missing).code == f"{missing} is no file; it comes from https://github.com/openai/grade-school-math"
