"""recipes/code_humaneval: every program gets the verdict that it should, and one that does not is listed."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.code_humaneval.run import main
from reward_loop.config import SandboxConfig
from reward_loop.errors import ConfigError
from reward_loop.sandbox.probe import choose_level, probe
from tests.recipes.conftest import RunHere

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = ROOT / ".." / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
ATTACKS = 16


@pytest.fixture(scope="module")
def walls() -> None:
    """Hostile programs are run behind walls only."""
    try:
        choose_level(SandboxConfig(), probe(SandboxConfig()))
    except ConfigError as error:
        pytest.skip(f"this machine has no sandbox: {error}")


def rows_of(stdout: str) -> dict[str, list[str]]:
    """The cells of each line of the table by the first one."""
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in stdout.splitlines() if line.startswith("│")]
    return {cells[0]: cells[1:] for cells in lines}


def problems_file(folder: Path, solution: str) -> Path:
    problem = {
        "task_id": "Own/0",
        "prompt": 'def add(a, b):\n    """Return the sum."""\n',
        "canonical_solution": solution,
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
        "entry_point": "add",
    }
    path = folder / "problems.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(problem).encode() + b"\n"))
    return path


@pytest.mark.usefixtures("walls")
@pytest.mark.skipif(not PROBLEMS.exists(), reason="needs ../shared/data/humaneval beside the checkout")
def test_all_canonical_solutions_pass_and_everything_else_gets_its_verdict() -> None:
    command = [sys.executable, str(ROOT / "recipes" / "code_humaneval" / "run.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = rows_of(ended.stdout)
    assert rows["canonical"][:3] == rows["canonical, completion only"][:3] == ["164", "164 passed", "164"]
    assert rows["wrong: returns None"][:3] == ["164", "164 failed", "164"]
    assert rows["wrong: no code"][:3] == ["164", "164 no_code", "164"]
    assert sum(kind.startswith("hostile: ") for kind in rows) == ATTACKS
    assert ended.stdout.endswith(f"{4 * 164 + ATTACKS} of {4 * 164 + ATTACKS} verdicts are as expected\n")
    assert re.search(r"^ +level [123]: ", ended.stdout, re.MULTILINE)


@pytest.mark.usefixtures("walls")
def test_a_verdict_that_is_not_as_expected_is_listed_and_ends_with_exit_code_1(tmp_path: Path, run_here: RunHere) -> None:
    ended = run_here(main, problems_file(tmp_path, "    return a - b\n"), "sandbox.timeout_s=2")
    assert ended.code == 1
    assert "NOT AS EXPECTED Own/0 canonical: failed (AssertionError: assert candidate(1, 2) == 3), not passed\n" in ended.output
    assert ended.output.endswith(f"{2 + ATTACKS} of {4 + ATTACKS} verdicts are as expected\n")


def test_a_missing_file_and_a_bad_setting_are_named(tmp_path: Path, run_here: RunHere) -> None:
    missing = tmp_path / "nothing.gz"
    assert run_here(main, missing).code == f"{missing} is no file; it comes from https://github.com/openai/human-eval"
    assert "sandbox.level" in str(run_here(main, problems_file(tmp_path, ""), "sandbox.levels=1").code)
