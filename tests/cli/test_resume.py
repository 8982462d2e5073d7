"""Crashes and interruptions of real processes: nothing is lost, nothing is scored twice, nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command

Row = dict[str, Any]
Read = Callable[[Path], list[Row]]
Write = Callable[..., Path]
Refused = Callable[..., str]

ROOT = Path(__file__).resolve().parents[2]
ROWS = 3000
WAIT_S = 30.0
SOON_S = 10.0

# Scores the rows before STOP_AT, notes each in the file DONE, and says so and waits for ever at those after it.
STOPPING = """
import os, threading

stop_at = int(os.environ.get("STOP_AT", "1000000"))

def compute_score(solution_str, extra_info):
    row = extra_info["row"]
    if row >= stop_at:
        os.write(1, b"stopped\\n")
        threading.Event().wait()
    with open(os.environ["DONE"], "a") as done:
        done.write(f"{row}\\n")
    if row % 10 == 3:
        raise ValueError(f"row {row} is bad")
    return {"score": row / 7, "row": row}
"""


class Scoring:
    """A directory with rollouts and a function, and the processes that score there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done = directory / "done"
        self.done.touch()
        self.output = directory / "out.jsonl"
        self.processes: list[subprocess.Popen[str]] = []
        rows = [{"data_source": f"s{row % 3}", "response": "x", "extra_info": {"row": row}} for row in range(ROWS)]
        (directory / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (directory / "reward.py").write_text(STOPPING)

    def start(self, *words: str, stop_at: int) -> subprocess.Popen[str]:
        """Start `reward-loop score` and wait until it stands still at a row."""
        command = [sys.executable, "-m", "reward_loop.cli.main", "score", "in.jsonl", "-o", "out.jsonl"]
        process = subprocess.Popen(
            [*command, "custom_reward_function.path=reward.py", *words],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "STOP_AT": str(stop_at), "DONE": str(self.done)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        return process

    def wait_for_disk(self, stop_at: int) -> None:
        """Wait until every outcome that there is has been written."""
        deadline = time.monotonic() + WAIT_S
        lines = 0
        partial = self.directory / "out.jsonl.partial"
        while time.monotonic() < deadline:
            lines = sum(file.read_bytes().count(b"\n") for file in partial.glob("chunk-*[0-9]"))
            lines += sum(file.read_bytes().count(b"\n") for file in partial.glob("*.journal"))
            if lines == stop_at:
                return
            time.sleep(0.02)
        raise AssertionError(f"{lines} of {stop_at} outcomes are on disk")

    def left_behind(self) -> bool:
        """Whether any process of the last session lives on; Python's own helpers end a moment after it."""
        deadline = time.monotonic() + SOON_S
        while time.monotonic() < deadline:
            try:
                os.killpg(self.processes[-1].pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.02)
        return True


@pytest.fixture
def scoring(tmp_path: Path) -> Iterator[Scoring]:
    scoring = Scoring(tmp_path)
    yield scoring
    for process in scoring.processes:
        process.kill()
        process.communicate()


@pytest.fixture
def finish(command: Command, scoring: Scoring, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """Continue the run in this process, to its end, and return the rows of the output."""

    def finish(*words: object) -> list[Row]:
        monkeypatch.chdir(scoring.directory)
        monkeypatch.setenv("DONE", str(scoring.done))
        monkeypatch.delenv("STOP_AT", raising=False)
        function = "custom_reward_function.path=reward.py"
        ended = command("score", "in.jsonl", "-o", "out.jsonl", function, *words)
        assert ended.code == 1, ended.errors  # every tenth row fails
        assert not scoring.output.with_name("out.jsonl.partial").exists()
        return [json.loads(line) for line in scoring.output.read_text("utf-8").splitlines()]

    return finish


def expected(row: int) -> Row:
    bad = row % 10 == 3
    return {
        "data_source": f"s{row % 3}",
        "response": "x",
        "extra_info": {"row": row},
        "reward": None if bad else row / 7,
        "token_rewards": None,
        "reward_status": "error" if bad else "ok",
        "reward_extra_info": {} if bad else {"score": row / 7, "row": row},
    }


def assert_undisturbed(rows: list[Row]) -> None:
    """Assert that these are the rows of a run that nothing disturbed."""
    for number, row in enumerate(rows):
        assert row.pop("reward_seconds") > 0
        message = row.pop("reward_message")
        assert message.startswith(f"ValueError: row {number} is bad") if number % 10 == 3 else message == ""
    assert rows == [expected(row) for row in range(ROWS)]


def test_a_run_that_is_killed_again_and_again_gives_what_an_undisturbed_one_gives(
    scoring: Scoring, finish: Callable[..., list[Row]]
) -> None:
    for stop_at in (300, 2700):
        process = scoring.start("--resume", stop_at=stop_at)
        scoring.wait_for_disk(stop_at)
        process.kill()
        assert process.wait(WAIT_S) == -signal.SIGKILL
    rows = finish("--resume")
    assert_undisturbed(rows)
    scored = Counter(map(int, scoring.done.read_text().split()))
    assert scored == Counter(range(ROWS)), "a row that was on disk was scored again"
    summary = json.loads((scoring.directory / "out.jsonl.summary.json").read_text("utf-8"))
    assert (summary["rows"], summary["rows_before"], summary["statuses"]) == (ROWS, 2700, {"ok": 2700, "error": 300})
    rewards = [row for row in range(ROWS) if row % 10 != 3]
    assert summary["reward"]["mean"] == pytest.approx(sum(rewards) / 7 / len(rewards))


@pytest.mark.parametrize(("stop", "words"), [(signal.SIGINT, []), (signal.SIGTERM, ["--overwrite"])])
def test_an_interruption_keeps_what_was_scored_and_says_how_to_continue(
    scoring: Scoring, finish: Callable[..., list[Row]], stop: signal.Signals, words: list[str]
) -> None:
    process = scoring.start("--data-source", "it's one", "--format=jsonl", *words, stop_at=700)
    scoring.wait_for_disk(700)
    asked = time.monotonic()
    process.send_signal(stop)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert time.monotonic() - asked < SOON_S, "a function that hangs must not hold up the end"
    assert not scoring.left_behind()
    [line] = errors.splitlines()
    again = shlex.split(line.removeprefix("interrupted; to continue: "))
    given = ["score", "in.jsonl", "-o", "out.jsonl", "custom_reward_function.path=reward.py", "--data-source", "it's one"]
    assert again == ["reward-loop", *given, "--format=jsonl", "--resume"]
    rows = finish(*again[6:])
    assert [row["reward"] for row in rows] == [expected(row)["reward"] for row in range(ROWS)]
    scored = Counter(map(int, scoring.done.read_text().split()))
    assert scored == Counter(range(ROWS)), "a row that had ended before the interruption was scored again"


def test_an_interruption_ends_grader_processes_that_hang(scoring: Scoring) -> None:
    busy = STOPPING.replace("threading.Event().wait()", "while True: pass")
    (scoring.directory / "reward.py").write_text(busy)
    process = scoring.start("reward_model.reward_manager=prime", stop_at=100)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert time.monotonic() - asked < SOON_S
    assert not scoring.left_behind()


def test_a_torn_journal_and_a_chunk_whose_line_is_missing_are_scored_again(
    scoring: Scoring, finish: Callable[..., list[Row]]
) -> None:
    process = scoring.start(stop_at=1300)  # two chunks are finished, of the third 276 rows
    scoring.wait_for_disk(1300)
    process.kill()
    process.wait(WAIT_S)
    partial = scoring.directory / "out.jsonl.partial"
    finished = (partial / "finished.jsonl").read_bytes()
    (partial / "finished.jsonl").write_bytes(finished[: finished.index(b"\n") + 20])
    torn_off = 1 - json.loads(finished.splitlines()[0])["chunk"]  # either may have ended first
    journal = partial / "chunk-00000002.journal"
    journal.write_bytes(journal.read_bytes()[:-9])
    assert_undisturbed(finish("--resume"))
    scored = Counter(map(int, scoring.done.read_text().split()))
    again = sorted(row for row, times in scored.items() if times == 2)
    assert set(range(512 * torn_off, 512 * torn_off + 512)) <= set(again)
    assert sum(scored.values()) == ROWS + 512 + 1


def test_two_processes_do_not_continue_the_same_run(scoring: Scoring, refused: Refused) -> None:
    scoring.start(stop_at=100)
    words = ["score", scoring.directory / "in.jsonl", "-o", scoring.output]
    for how in ("--resume", "--overwrite"):
        assert "is being written by another process" in refused(*words, how)


def test_a_run_is_not_continued_over_a_change(
    scoring: Scoring, finish: Callable[..., list[Row]], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = scoring.start(stop_at=600)
    process.kill()
    process.wait(WAIT_S)
    monkeypatch.chdir(scoring.directory)
    words = ["score", "in.jsonl", "-o", "out.jsonl", "custom_reward_function.path=reward.py", "--resume"]
    assert "holds an unfinished run: continue it with --resume" in refused(*words[:-1])

    (scoring.directory / "reward.py").write_text(f"{STOPPING}\n# edited\n")
    assert "is of another run: the contents of the reward function's file changed" in refused(*words)
    (scoring.directory / "reward.py").write_text(STOPPING)

    assert "reward_model.on_error was 'raise' and is 'mask'" in refused(*words, "reward_model.on_error=mask")
    assert "field.constant_data_source was None and is 'x'" in refused(*words, "--data-source=x")

    rollouts = scoring.directory / "in.jsonl"
    lines, times = rollouts.read_bytes(), rollouts.stat()
    rollouts.write_bytes(lines.replace(b'"x"', b'"y"'))
    assert "the contents of the input changed" in refused(*words)
    rollouts.write_bytes(lines)
    os.utime(rollouts, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert_undisturbed(finish("--resume", "reward_model.timeout_s=60"))
    assert "is complete, there is nothing to resume" in refused(*words)


def test_a_finished_run_can_be_made_anew(scoring: Scoring, finish: Callable[..., list[Row]]) -> None:
    first = finish()
    assert re.fullmatch(r"(\d+\n)+", scoring.done.read_text())
    assert [row["reward"] for row in finish("--overwrite")] == [row["reward"] for row in first]
    assert len(scoring.done.read_text().split()) == 2 * ROWS
