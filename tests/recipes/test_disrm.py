"""recipes/disrm: from nothing to rollouts that two real vLLM servers have scored, and the report."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.recipes.scripts import run_script

DEMO = Path(__file__).resolve().parents[2] / "recipes" / "disrm"
pytestmark = pytest.mark.vllm


class Demo(NamedTuple):
    """What one run of the demo said and left."""

    stdout: str
    out: Path
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("disrm")
    stdout = run_script(DEMO / "demo.sh", "out", folder=folder)
    return Demo(stdout, folder / "out", pq.read_table(folder / "out" / "scored.parquet").to_pylist())


def test_the_demo_ends_with_where_the_report_is(demo: Demo) -> None:
    page = demo.out / "report.html"
    assert demo.stdout.splitlines()[-1] == f"The report, for a browser: file://{page}"
    assert page.stat().st_size > 10_000


def test_every_response_has_a_finite_reward_and_an_empty_one_has_none(demo: Demo) -> None:
    assert len(demo.rows) == 480
    assert {row["reward_status"] for row in demo.rows if row["response"]} == {"ok"}
    assert all(isfinite(row["reward"]) for row in demo.rows if row["response"])
    assert {(row["reward_status"], row["reward"]) for row in demo.rows if not row["response"]} == {("unscorable", None)}


def test_equal_texts_get_equal_rewards_whichever_server_scored_them_and_different_ones_do_not(demo: Demo) -> None:
    rewards: dict[tuple[str, str], list[float]] = {}
    for row in demo.rows:
        if row["reward"] is not None:
            rewards.setdefault((row["prompt"], row["response"]), []).append(row["reward"])
    assert any(len(several) > 1 for several in rewards.values())
    assert all(max(several) - min(several) < 1e-4 for several in rewards.values())
    assert len({round(several[0], 3) for several in rewards.values()}) > 100


def test_each_server_has_its_log_where_the_demo_says(demo: Demo) -> None:
    assert f"say what they do in {demo.out / 'logs'}" in demo.stdout
    assert len(list((demo.out / "logs").iterdir())) >= 2
