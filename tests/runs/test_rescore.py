"""Scoring a scored file again: what is as stored, and what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reward_loop import RewardLoopManager
from reward_loop.config import RewardLoopConfig
from reward_loop.runs.fields import FieldMap, Row
from reward_loop.runs.rescore import Change, Comparison, rescore
from reward_loop.runs.scoring import FileScoring
from reward_loop.runs.source import open_source
from tests.fakes import config_of


def ignore(row: Row) -> None:
    return


def scored(directory: Path, rows: list[Row], function: Callable[..., Any], config: RewardLoopConfig, name: str) -> Path:
    rollouts = directory / "in.jsonl"
    rollouts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = open_source(rollouts)
    fields = FieldMap.detect(source.names(), source.head())
    with (
        RewardLoopManager(config, compute_score=function) as manager,
        FileScoring(manager, source, fields, directory / name, ignore) as run,
    ):
        run.begin(resume=False, overwrite=False)
        asyncio.run(run.run())
        run.end(datetime.now(UTC), 1.0)
    return directory / name


def compared(path: Path, function: Callable[..., Any], config: RewardLoopConfig) -> Comparison:
    source = open_source(path)
    fields = FieldMap.detect(source.names(), source.head())
    with RewardLoopManager(config, compute_score=function) as manager:
        return asyncio.run(rescore(manager, source, fields, ignore))


def length(solution_str: str) -> float:
    return len(solution_str) / 3


ROWS: list[Row] = [{"data_source": "s", "response": "x" * row, "uid": row // 3} for row in range(1100)]
both = pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])


@both
def test_the_same_function_gives_what_is_stored(tmp_path: Path, name: str) -> None:
    path = scored(tmp_path, ROWS, length, config_of(), name)
    assert compared(path, length, config_of()) == Comparison(len(ROWS), [])


@both
def test_changes_are_named_by_row_with_what_is_stored_and_what_is_today(tmp_path: Path, name: str) -> None:
    def today(solution_str: str) -> float | None:
        match len(solution_str):
            case 7:
                raise ValueError("seven")
            case 900:
                return None
            case 1000:
                return 1.0
            case _:
                return length(solution_str)

    comparison = compared(scored(tmp_path, ROWS, length, config_of(), name), today, config_of())
    assert comparison.same == len(ROWS) - 3
    assert [change.row for change in comparison.changes] == [7, 900, 1000]
    [error, unscorable, other] = comparison.changes
    assert (error.stored["reward"], error.today["reward"], error.today["reward_status"]) == (7 / 3, None, "error")
    assert unscorable.today["reward_status"] == "unscorable"
    assert isinstance(other, Change)
    assert (other.stored["reward_status"], other.today["reward"]) == ("ok", 1.0)


@both
def test_per_token_rewards_are_compared_token_by_token(tmp_path: Path, name: str) -> None:
    rows = [{"data_source": "s", "response": text} for text in ("ab", "cd")]
    path = scored(tmp_path, rows, lambda solution_str: [0.25, 0.75], config_of(), name)
    swapped = compared(path, lambda solution_str: [0.25, 0.75] if solution_str == "ab" else [0.75, 0.25], config_of())
    assert [change.row for change in swapped.changes] == [1]
    assert swapped.changes[0].stored["token_rewards"] == [0.25, 0.75]


@both
def test_failures_that_fail_again_are_as_stored_also_with_a_value_of_their_own(tmp_path: Path, name: str) -> None:
    def fails(solution_str: str) -> float:
        raise ValueError(solution_str)

    rows: list[Row] = [{"data_source": "s", "response": "a"}, {"data_source": "s", "response": 5}, {"data_source": "s"}]
    config = config_of(reward_model={"on_error": {"value": -1.0}})
    path = scored(tmp_path, rows, fails, config, name)
    assert compared(path, fails, config) == Comparison(3, [])
    assert [change.today["reward"] for change in compared(path, fails, config_of()).changes] == [None] * 3


@both
def test_fields_of_several_types_reach_the_function_as_they_did_at_first(tmp_path: Path, name: str) -> None:
    def strict(ground_truth: Any, extra_info: dict[str, Any], solution_str: str) -> float:
        return float(type(ground_truth) is int) + 2 * ("a" in extra_info)

    rows: list[Row] = [
        {"data_source": "s", "response": "x", "ground_truth": 1, "extra_info": {"a": 1}},
        {"data_source": "s", "response": "x", "ground_truth": "1", "extra_info": {}},
        {"data_source": "s", "response": "x", "ground_truth": [1], "extra_info": {"b": {}}},
    ]
    path = scored(tmp_path, rows, strict, config_of(), name)
    assert [row["reward"] for chunk in open_source(path).chunks(9) for row in chunk.rows if isinstance(row, dict)] == [3, 0, 0]
    assert compared(path, strict, config_of()) == Comparison(3, [])


def test_groups_are_those_of_the_run(tmp_path: Path) -> None:
    def share(solution_strs: list[str]) -> list[float]:
        return [len(text) / max(1, sum(map(len, solution_strs))) for text in solution_strs]

    config = config_of(reward_model={"reward_manager": {"name": "group"}}, actor_rollout_ref={"rollout": {"n": 3}})
    path = scored(tmp_path, ROWS, share, config, "out.parquet")
    assert compared(path, share, config) == Comparison(len(ROWS), [])
