"""`reward-loop rescore`: the stored run against today's code and settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command

Write = Callable[..., Path]
Refused = Callable[..., str]

FUNCTION = "def compute_score(solution_str, bonus=0.0):\n    return len(solution_str) + bonus\n"
STRICTER = """
def compute_score(solution_str, bonus=0.0):
    if solution_str == "bb":
        raise ValueError("[no] b")
    return None if solution_str == "ccc" else float(len(solution_str))
"""


@pytest.fixture
def scored(command: Command, write_jsonl: Write, tmp_path: Path) -> Path:
    """A run whose settings were given by flags, a file and on the command line."""
    (tmp_path / "reward.py").write_text(FUNCTION)
    (tmp_path / "today.py").write_text(STRICTER)
    (tmp_path / "run.yaml").write_text(f"custom_reward_function: {{path: {tmp_path / 'reward.py'}}}\n")
    path = write_jsonl([{"text": text} for text in ("a", "bb", "ccc", "dddd")] + ['{"text": '])
    words = ["-c", tmp_path / "run.yaml", "--response-field=text", "--data-source=x", "reward_model.on_error=mask"]
    assert command("score", path, "-o", tmp_path / "out.parquet", *words).code == 0
    return tmp_path / "out.parquet"


def test_nothing_changed_under_the_runs_own_fields_and_settings(command: Command, scored: Path) -> None:
    ended = command("rescore", scored)
    assert (ended.code, ended.output, ended.errors) == (0, "", "5 rows as stored, 0 changed\n")


def test_what_changed_is_shown_and_written(command: Command, scored: Path, tmp_path: Path) -> None:
    today = f"custom_reward_function.path={tmp_path / 'today.py'}"
    ended = command("rescore", scored, today, "--changes", tmp_path / "changes.jsonl")
    assert ended.code == 1
    [header, error, *rest, unscorable, _, end] = ended.errors.splitlines()
    assert header.split() == ["row", "stored", "today", "message"]
    assert error.split()[:6] == ["1", "2", "error", "ValueError:", "[no]", "b"]
    assert unscorable.split()[:4] == ["2", "3", "unscorable", "Unscorable:"]
    assert end == "3 rows as stored, 2 changed"
    assert max(map(len, [header, error, *rest, unscorable])) <= 80
    changes: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "changes.jsonl").read_text().splitlines()]
    assert [(change["row"], change["stored"]["reward"], change["today"]["reward"]) for change in changes] == [
        (1, 2.0, None),
        (2, 3.0, None),
    ]


def test_settings_given_here_come_on_top_of_the_runs_own(command: Command, scored: Path) -> None:
    ended = command("rescore", scored, "custom_reward_function.reward_kwargs.bonus=0.5")
    assert ended.code == 1
    assert "1 rows as stored, 4 changed" in ended.errors


def test_many_changes_are_shown_in_part(command: Command, write_jsonl: Write, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(FUNCTION)
    path = write_jsonl([{"data_source": "x", "response": "a"}] * 30)
    function = f"custom_reward_function.path={tmp_path / 'reward.py'}"
    assert command("score", path, "-o", tmp_path / "out.jsonl", function).code == 0
    ended = command("rescore", tmp_path / "out.jsonl", "custom_reward_function.reward_kwargs.bonus=1")
    assert "and 10 more: see --changes FILE" in ended.errors
    assert "0 rows as stored, 30 changed" in ended.errors


def test_what_cannot_be_compared_says_why(refused: Refused, scored: Path, write_jsonl: Write, tmp_path: Path) -> None:
    assert "none.parquet: no such file" in refused("rescore", tmp_path / "none.parquet")
    plain = write_jsonl([{"data_source": "x", "response": "a"}], "plain.jsonl")
    assert "plain.jsonl.summary.json is not there" in refused("rescore", plain)
    summary = scored.with_name("out.parquet.summary.json")
    plain.with_name("plain.jsonl.summary.json").write_bytes(summary.read_bytes())
    assert "is no scored file" in refused("rescore", plain)
    summary.write_text("{broken")
    assert "out.parquet.summary.json is damaged" in refused("rescore", scored)
    summary.write_text("{}")
    assert "out.parquet.summary.json is damaged" in refused("rescore", scored)


def test_an_unfinished_run_is_not_compared(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.partial").mkdir()
    assert "has not ended" in refused("rescore", tmp_path / "out.jsonl")
