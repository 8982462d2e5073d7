"""recipes/math_verify: agreement with labels, the outcomes told apart, and what happens where a label disagrees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / ".." / "shared" / "data" / "math"


def run_recipe(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "recipes" / "math_verify" / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cells(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in output.splitlines() if line.startswith("│")]


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/math beside the checkout")
def test_every_reward_agrees_with_its_label_and_the_outcomes_are_told_apart(tmp_path: Path) -> None:
    ended = run_recipe(DATA / "math_cot_50.jsonl", DATA / "math500.jsonl", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [row[:-1] for row in cells(ended.stdout)] == [
        ["labelled responses", "400", "375", "25", "0", "0", "0", "400"],
        ["MATH-500 solutions", "500", "500", "0", "0", "0", "0", "500"],
        ["contrived responses", "8", "0", "0", "3", "5", "0", "8"],
    ]
    assert ended.stdout.endswith("908 of 908 samples ended as expected\n")


def test_a_disagreement_is_listed_and_ends_with_exit_code_1(tmp_path: Path) -> None:
    labelled, solutions = tmp_path / "labelled.jsonl", tmp_path / "solutions.jsonl"
    responses = [r"\boxed{42}", r"\boxed{41}", "no idea"]
    labelled.write_text(json.dumps({"idx": 7, "question": "6 * 7?", "gt": "42", "code": responses, "score": [True, True, False]}))
    solutions.write_text(json.dumps({"problem": "6 * 7?", "solution": r"\boxed{42}", "answer": "42"}))
    ended = run_recipe(labelled, solutions, tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "DISAGREES labelled responses 7-1: wrong (), expected correct, truth '42'" in ended.stdout
    assert ended.stdout.endswith("11 of 12 samples ended as expected\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    ended = run_recipe(tmp_path / "nothing.jsonl", tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{tmp_path / 'nothing.jsonl'} is no file")
