"""recipes/demo: three commands from nothing to a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.recipes.scripts import run_script

DEMO = Path(__file__).resolve().parents[2] / "recipes" / "demo"


class Demo(NamedTuple):
    """What one run of the demo said and left."""

    stdout: str
    out: Path
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    stdout = run_script(DEMO / "run.sh", "out", folder=folder)
    return Demo(stdout, folder / "out", pq.read_table(folder / "out" / "scored.parquet").to_pylist())


def test_the_demo_ends_with_where_the_report_is(demo: Demo) -> None:
    page = demo.out / "report.html"
    assert demo.stdout.splitlines()[-1] == f"The report, for a browser: file://{page}"
    assert "accuracy, small policy" in page.read_text("utf-8")


def test_samples_that_cannot_be_scored_have_a_status_and_no_reward(demo: Demo) -> None:
    rewards = {
        status: [row["reward"] for row in demo.rows if row["reward_status"] == status] for status in ("error", "unscorable")
    }
    assert len(demo.rows) == 5040
    assert rewards["error"] == [None] * 24  # two problems with an unusable ground truth, 3 policies, 4 samples
    assert set(rewards["unscorable"]) == {None}
    assert all(row["response"] == "" for row in demo.rows if row["reward_status"] == "unscorable")


def test_a_group_has_four_samples_and_a_better_policy_earns_more(demo: Demo) -> None:
    groups = {row["uid"] for row in demo.rows}
    assert len(groups) * 4 == len(demo.rows)
    scored = [row for row in demo.rows if row["reward"] is not None]
    earned = {
        name: mean(row["reward"] for row in scored if row["extra_info"]["policy"] == name)
        for name in ("large", "medium", "small")
    }
    assert earned["large"] > earned["medium"] + 0.1 > earned["small"] + 0.2


def test_the_same_seed_makes_the_same_rollouts_and_another_one_others(tmp_path: Path) -> None:
    made: list[str] = []
    for seed in ("1", "1", "2"):
        out = tmp_path / "rollouts.jsonl"
        subprocess.run([sys.executable, str(DEMO / "make_rollouts.py"), str(out), seed], capture_output=True, check=True)
        made.append(out.read_text("utf-8"))
    assert made[0] == made[1]
    assert made[0] != made[2]
    assert set(json.loads(made[0].splitlines()[0])) == {"uid", "data_source", "prompt", "response", "ground_truth", "extra_info"}
