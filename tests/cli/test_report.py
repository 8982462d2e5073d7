"""`reward-loop report`: that the page is written, and what is refused. What it shows is tested with `runs.report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command

Write = Callable[..., Path]
Refused = Callable[..., str]


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_page_of_a_scored_file_tells_how_its_rows_ended(
    command: Command, write_jsonl: Write, tmp_path: Path, name: str
) -> None:
    rows = [
        {"data_source": "openai/gsm8k", "response": "#### 1", "answer": "1"},
        {"data_source": "openai/gsm8k", "response": 5, "answer": "1"},
        {"data_source": "openai/gsm8k", "response": "", "answer": "1"},
    ]
    assert command("score", write_jsonl(rows), "-o", tmp_path / name).code == 1
    ended = command("report", tmp_path / name)
    assert (ended.code, ended.output, ended.errors) == (0, "", f"report: {tmp_path / name}.html\n")
    page = (tmp_path / f"{name}.html").read_text("utf-8")
    for word in ("openai/gsm8k", "error", "unscorable", "holds int 5"):
        assert word in page


def test_the_page_goes_where_it_is_told_to(command: Command, write_jsonl: Write, tmp_path: Path) -> None:
    path = write_jsonl([{"data_source": "openai/gsm8k", "response": "#### 1", "answer": "1"}])
    assert command("score", path, "-o", tmp_path / "out.jsonl").code == 0
    assert command("report", tmp_path / "out.jsonl", "--html", tmp_path / "page.html").code == 0
    assert "<html" in (tmp_path / "page.html").read_text("utf-8")


def test_what_cannot_be_reported_says_why(refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    plain = write_jsonl([{"data_source": "x", "response": "a"}])
    assert "is no scored file" in refused("report", plain)
    assert "no such file" in refused("report", tmp_path / "none.parquet")
    (tmp_path / "out.jsonl.partial").mkdir()
    message = refused("report", tmp_path / "out.jsonl")
    assert "has not ended" in message
    assert "--resume" in message


def test_a_page_that_cannot_be_written_is_named(command: Command, refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    path = write_jsonl([{"data_source": "openai/gsm8k", "response": "#### 1", "answer": "1"}])
    assert command("score", path, "-o", tmp_path / "out.jsonl").code == 0
    page = tmp_path / "nowhere" / "page.html"
    assert refused("report", tmp_path / "out.jsonl", "--html", page).startswith(f"{page}: No such file or directory")
