"""One run over a file: what it leaves when it ends, when it fails, and while it is under way."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reward_loop import RewardLoopManager
from reward_loop.errors import DataError
from reward_loop.runs.fields import FieldMap, Row
from reward_loop.runs.scoring import FileScoring, summary_path
from reward_loop.runs.source import open_source
from tests.fakes import config_of

ROWS = 1200  # three chunks
WAIT_S = 20.0
STARTED = datetime(2026, 1, 2, tzinfo=UTC)


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    rows = [{"id": row, "data_source": f"s{row % 2}", "response": "x" * (row % 3 + 1), "uid": row // 4} for row in range(ROWS)]
    return write(tmp_path / "rollouts.jsonl", rows)


def length(solution_str: str) -> float:
    return float(len(solution_str))


class Run:
    """A run in this process, with what `reward-loop score` would do around it."""

    def __init__(
        self,
        rollouts: Path,
        output: Path,
        function: Callable[..., Any] = length,
        progress: Callable[[Row], None] = lambda row: None,
        **reward_model: Any,
    ) -> None:
        self.manager = RewardLoopManager(config_of(reward_model=reward_model), compute_score=function)
        source = open_source(rollouts)
        fields = FieldMap.detect(source.names(), source.head())
        self.scoring = FileScoring(self.manager, source, fields, output, progress)

    def __call__(self, *, resume: bool = False, overwrite: bool = False) -> dict[str, Any]:
        with self.manager, self.scoring as scoring:
            scoring.begin(resume=resume, overwrite=overwrite)
            asyncio.run(scoring.run())
            return scoring.end(STARTED, 2.0)


def read(path: Path) -> list[Row]:
    return [row for chunk in open_source(path).chunks(1000) for row in chunk.rows if isinstance(row, dict)]


def without_seconds(path: Path) -> list[Row]:
    return [{**row, "reward_seconds": None} for row in read(path)]


# -- a run that ends -------------------------------------------------------------------------------------------------


def test_the_output_holds_the_input_in_order_and_a_reward_for_each_row(rollouts: Path, tmp_path: Path) -> None:
    Run(rollouts, tmp_path / "out.parquet")()
    scored = read(tmp_path / "out.parquet")
    assert [{name: row[name] for name in ("id", "data_source", "response", "uid")} for row in scored] == read(rollouts)
    assert [row["reward"] for row in scored] == [row["id"] % 3 + 1.0 for row in scored]
    assert {row["reward_status"] for row in scored} == {"ok"}
    assert all(row["reward_seconds"] > 0 for row in scored)
    assert {path.name for path in tmp_path.iterdir()} == {"rollouts.jsonl", "out.parquet", "out.parquet.summary.json"}


def test_the_summary_counts_everything_and_says_how_it_was_scored(rollouts: Path, tmp_path: Path) -> None:
    def odd_sources_fail(solution_str: str, data_source: str) -> float:
        if data_source == "s1":
            raise ValueError(solution_str)
        return length(solution_str)

    output = tmp_path / "out.jsonl"
    summary = Run(rollouts, output, odd_sources_fail)()
    assert summary == json.loads(summary_path(output).read_text("utf-8"))
    assert (summary["rows"], summary["rows_before"], summary["seconds"], summary["rows_per_second"]) == (ROWS, 0, 2.0, 600.0)
    assert summary["statuses"] == {"ok": 600, "error": 600}
    assert summary["reward"] == {"mean": 2.0, "min": 1.0, "max": 3.0}
    assert summary["sources"] == {
        "s0": {"rows": 600, "mean": 2.0, "statuses": {"ok": 600}},
        "s1": {"rows": 600, "mean": None, "statuses": {"error": 600}},
    }
    assert summary["fields"]["response"] == "response"
    assert summary["config"]["reward_model"]["on_error"] == "raise"
    assert summary["started_at"] == "2026-01-02T00:00:00+00:00"


def test_progress_sees_every_row_once_and_the_first_failure_is_kept(rollouts: Path, tmp_path: Path) -> None:
    def fail_at_times(solution_str: str) -> float:
        return 1 / (len(solution_str) - 2)

    seen: list[Row] = []
    run = Run(rollouts, tmp_path / "out.jsonl", fail_at_times, seen.append)
    run()
    assert Counter(row["reward_status"] for row in seen) == {"ok": 800, "error": 400}
    assert re.match(r"row \d+: ZeroDivisionError: ", run.scoring.first_failure)  # of whichever chunk failed first


def test_sums_are_those_of_the_files_order_whichever_chunk_ends_first(rollouts: Path, tmp_path: Path) -> None:
    rewards = {0: 1e16, 512: 1.0, 1024: -1e16}  # in this order they add up to 0, in any that ends with 1.0 to 1
    rows = [{**row, "extra_info": {"id": row["id"]}} for row in read(rollouts)]
    others_ended = threading.Event()
    ended = 0

    def wait_for_the_others(solution_str: str, extra_info: dict[str, Any]) -> float:
        if extra_info["id"] == 512:
            assert others_ended.wait(WAIT_S)
        return rewards.get(extra_info["id"], 0.0)

    def count(row: Row) -> None:
        nonlocal ended
        ended += 1
        if ended == ROWS - 1:
            others_ended.set()

    summary = Run(write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", wait_for_the_others, count)()
    assert summary["statuses"] == {"ok": ROWS}
    assert summary["reward"]["mean"] == 0.0


def test_the_sources_name_may_hold_what_utf8_cannot(tmp_path: Path) -> None:
    rollouts = write(tmp_path / "in.jsonl", [{"data_source": "cut \ud83d", "response": "a"}])
    Run(rollouts, tmp_path / "out.parquet")()
    assert list(json.loads(summary_path(tmp_path / "out.parquet").read_bytes())["sources"]) == ["cut \ud83d"]


# -- a run that is continued -----------------------------------------------------------------------------------------


class Stopped(Exception):
    """Ends a run in its middle."""


def stop_after(rows: int) -> Callable[[Row], None]:
    seen = 0

    def progress(row: Row) -> None:
        nonlocal seen
        seen += 1
        if seen == rows:
            raise Stopped

    return progress


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_a_run_that_was_stopped_again_and_again_gives_what_an_undisturbed_one_gives(
    rollouts: Path, tmp_path: Path, name: str
) -> None:
    scored: Counter[int] = Counter()

    def counting(solution_str: str, extra_info: dict[str, Any]) -> float:
        scored[extra_info["id"]] += 1
        return 0.1 * len(solution_str)

    rollouts = write(tmp_path / "in.jsonl", [{**row, "extra_info": {"id": row["id"]}} for row in read(rollouts)])
    undisturbed = Run(rollouts, tmp_path / f"undisturbed.{name}", counting)()
    scored.clear()
    output = tmp_path / name
    for rows in (1, 400, 600):
        with pytest.raises(Stopped):
            Run(rollouts, output, counting, stop_after(rows))(resume=True)
    assert not output.exists()
    summary = Run(rollouts, output, counting)(resume=True)
    assert without_seconds(output) == without_seconds(tmp_path / f"undisturbed.{name}")
    for part in ("rows", "statuses", "reward", "sources"):
        assert summary[part] == undisturbed[part], part
    assert 0 < summary["rows_before"] < ROWS
    assert len(scored) == ROWS


def test_what_is_scored_together_is_scored_again_together(rollouts: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    def whole(solution_strs: list[str]) -> list[float]:
        calls.append(len(solution_strs))
        return [float(len(solution_strs))] * len(solution_strs)

    with pytest.raises(Stopped):
        Run(rollouts, tmp_path / "out.jsonl", whole, stop_after(700), reward_manager={"name": "batch"})()
    Run(rollouts, tmp_path / "out.jsonl", whole, reward_manager={"name": "batch"})(resume=True)
    assert set(calls) == {512, ROWS - 2 * 512}
    assert [row["reward"] for row in read(tmp_path / "out.jsonl")] == [512.0] * 1024 + [176.0] * 176


def test_a_crash_after_the_output_is_in_place_is_continued_to_the_same_output(rollouts: Path, tmp_path: Path) -> None:
    output, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    run = Run(rollouts, output)
    with run.manager, run.scoring as scoring:
        scoring.begin(resume=False, overwrite=False)
        asyncio.run(scoring.run())
        shutil.copytree(partial, tmp_path / "kept")
        scoring.end(STARTED, 2.0)
    complete = output.read_bytes()
    (tmp_path / "kept").rename(partial)  # as if the process had ended before it removed the directory
    continued = Run(rollouts, output)(resume=True)
    assert (continued["rows"], continued["rows_before"], continued["rows_per_second"]) == (ROWS, ROWS, 0)
    assert output.read_bytes() == complete
    assert not partial.exists()


# -- a run under way -------------------------------------------------------------------------------------------------


async def test_what_has_ended_is_on_disk_soon_also_while_nothing_else_ends(tmp_path: Path) -> None:
    rollouts = write(tmp_path / "in.jsonl", [{"data_source": "s", "response": text} for text in ("fast", "slow", "fast")])
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow_at_times(solution_str: str) -> float:
        if solution_str == "slow":
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return 1.0

    run = Run(rollouts, tmp_path / "out.jsonl", slow_at_times)
    journal = tmp_path / "out.jsonl.partial" / "chunk-00000000.journal"
    with run.manager, run.scoring as scoring:
        scoring.begin(resume=False, overwrite=False)
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(scoring.run())
            while not journal.exists() or journal.read_text().count("\n") < 2:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
            assert sorted(json.loads(line)["row"] for line in journal.read_text().splitlines()) == [0, 2]
            go.set()
        assert scoring.end(STARTED, 1.0)["rows"] == 3


async def test_a_disk_that_takes_no_more_ends_the_run_with_that_error(rollouts: Path, tmp_path: Path) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def never(solution_str: str) -> float:
        if solution_str == "xxx":
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
        return 1.0

    run = Run(rollouts, tmp_path / "out.jsonl", never)
    with run.manager, run.scoring as scoring:
        scoring.begin(resume=False, overwrite=False)
        (tmp_path / "out.jsonl.partial" / "chunk-00000000.journal").mkdir()  # nobody can append to that
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(IsADirectoryError):
                await scoring.run()


# -- what is refused before anything is scored -----------------------------------------------------------------------


def test_the_input_is_never_overwritten(rollouts: Path, tmp_path: Path) -> None:
    before = rollouts.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(rollouts)
    for output in (rollouts, tmp_path / "link.jsonl", tmp_path / "." / "rollouts.jsonl"):
        with pytest.raises(DataError, match="is the input itself"):
            Run(rollouts, output)(overwrite=True)
    assert rollouts.read_bytes() == before


def test_a_manager_of_groups_needs_a_field_that_tells_them_apart(tmp_path: Path) -> None:
    rollouts = write(tmp_path / "in.jsonl", [{"data_source": "s", "response": "a"}])

    def ranks(solution_strs: list[str]) -> list[float]:
        return [0.0] * len(solution_strs)

    with pytest.raises(DataError, match="--uid-field"):
        Run(rollouts, tmp_path / "out.jsonl", ranks, reward_manager={"name": "group"})()
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
