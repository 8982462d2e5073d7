"""The live lines: on a terminal a bar with rate, ETA and counts; elsewhere a plain line now and then."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from reward_loop.cli.progress import LiveCounts

ROOT = Path(__file__).resolve().parents[2]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def drawn(columns: int, total: int, resumed: Counter[str], *statuses: str) -> list[str]:
    """The last lines that a terminal of so many columns shows."""
    screen = io.StringIO()
    with LiveCounts(Console(file=screen, force_terminal=True, width=columns), "scoring", total) as progress:
        progress.resume(resumed)
        for status in statuses:
            progress.add({"reward_status": status})
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", CONTROL.sub("", screen.getvalue())) if line.strip()]
    assert max(map(len, lines)) <= columns
    return lines[-2:]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_bar_gives_way_and_the_numbers_stay_whole(columns: int) -> None:
    earlier = Counter({"ok": 900_000, "error": 90_000})
    [bar, counts] = drawn(columns, 1_000_000, earlier, *["ok"] * 3, "timeout", "unscorable")
    assert bar.startswith("scoring")
    assert re.search(r"990005/1000000 .*rows/s \d:\d\d:\d\d ETA", bar)
    assert counts == "900,003 ok  90,000 error  1 timeout  1 unscorable"


def test_off_a_terminal_nothing_is_drawn() -> None:
    screen = io.StringIO()
    with LiveCounts(Console(file=screen), "scoring", 3) as progress:
        for _ in range(3):
            progress.add({"reward_status": "ok"})
    assert screen.getvalue() == ""


def test_off_a_terminal_a_long_run_prints_a_line_now_and_then() -> None:
    screen, now = io.StringIO(), [0.0]
    with LiveCounts(Console(file=screen, width=40), "scoring", 1000, clock=lambda: now[0]) as progress:
        progress.resume(Counter({"ok": 100}))
        for row in range(250):
            now[0] += 0.125
            progress.add({"reward_status": "error" if row % 50 == 0 else "ok"})
    assert screen.getvalue().splitlines() == [
        "scoring: 181/1000 rows, 8.0 rows/s, 102 s left (179 ok, 2 error)",
        "scoring: 262/1000 rows, 8.0 rows/s, 92 s left (258 ok, 4 error)",
        "scoring: 343/1000 rows, 8.0 rows/s, 82 s left (338 ok, 5 error)",
    ]


def test_a_run_in_a_real_terminal_shows_rate_time_left_and_counts(write_jsonl: Callable[..., Path], tmp_path: Path) -> None:
    path = write_jsonl([{"data_source": "x", "response": "a", "answer": row} for row in range(100)])
    slow = "import asyncio\nasync def compute_score(solution_str, ground_truth):\n    await asyncio.sleep(ground_truth / 100)\n"
    (tmp_path / "slow.py").write_text(f"{slow}    return 1.0\n")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from reward_loop.cli.main import main; main()"
    words = [sys.executable, "-c", code, "score", str(path), "-o", str(tmp_path / "out.jsonl")]
    words.append(f"custom_reward_function.path={tmp_path / 'slow.py'}")
    child, terminal = pty.fork()
    if child == 0:
        os.execve(words[0], words, {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"})
    screen = b""
    try:
        while more := os.read(terminal, 65536):
            screen += more
    except OSError:  # what Linux says where the other end was closed
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = CONTROL.sub("", screen.decode())
    assert re.search(r"scoring ━+[╸╺]━+ +\d\d/100 \d+ rows/s 0:00:00 ETA 0:00:0\d\s+\d\d ok", text), "in mid-run"
    assert re.search(r"scoring ━+ 100/100 \d+ rows/s 0:00:0\d ETA 0:00:00\s+100 ok", text), "at the end"
    assert re.search(r"x +100 +1\.0000 +100 +0 +0 +0\s+100 rows in", text), "the result stays"
