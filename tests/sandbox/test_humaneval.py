"""The canonical solutions of HumanEval pass their tests at every level."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from reward_loop.sandbox.verdict import Limits, TestResult
from tests.sandbox.conftest import OpenSandbox

PROBLEMS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"


@pytest.mark.skipif(not PROBLEMS.exists(), reason="HumanEval.jsonl.gz is not in ../shared/data beside the checkout")
@pytest.mark.parametrize("level", [0, 1, 2])
async def test_all_canonical_solutions_pass(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    with gzip.open(PROBLEMS, "rt", encoding="utf-8") as lines:
        problems = [json.loads(line) for line in lines]
    async with asyncio.TaskGroup() as group:
        runs: dict[str, asyncio.Task[list[TestResult]]] = {
            problem["task_id"]: group.create_task(
                sandbox.run_tests(
                    problem["prompt"] + problem["canonical_solution"],
                    [f"{problem['test']}\ncheck({problem['entry_point']})"],
                    setup=problem["prompt"],
                    limits=Limits(wall_s=30.0),
                )
            )
            for problem in problems
        }
    assert len(runs) == 164
    assert {name: run.result() for name, run in runs.items() if [result.verdict for result in run.result()] != ["passed"]} == {}
