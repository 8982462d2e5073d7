"""Running the command line in this process, as its entry point does, and reading what it wrote."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reward_loop.cli.main import main
from reward_loop.runs.source import open_source


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    output: str
    errors: str


Command = Callable[..., Ended]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run `reward-loop WORDS…` and return how it ended."""
    terminated = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exited:
            main([str(word) for word in words])
        assert isinstance(exited.value.code, int)
        written = capfd.readouterr()
        return Ended(exited.value.code, written.out, written.err)

    yield run
    signal.signal(signal.SIGTERM, terminated)


@pytest.fixture
def refused(command: Command) -> Callable[..., str]:
    """Run a command that is wrong and return its one line of error."""

    def run(*words: object) -> str:
        ended = command(*words)
        assert (ended.code, ended.output) == (2, "")
        assert ended.errors.startswith("error: ")
        assert ended.errors.count("\n") == 1, "an error is one line"
        return ended.errors.removeprefix("error: ").rstrip()

    return run


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Write rows (a string: a line as it stands) to a JSON Lines file."""

    def write(rows: list[Any], name: str = "in.jsonl") -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / name

    return write


@pytest.fixture
def read() -> Callable[[Path], list[dict[str, Any]]]:
    """The rows of a scored file."""

    def read(path: Path) -> list[dict[str, Any]]:
        return [row for chunk in open_source(path).chunks(1000) for row in chunk.rows if isinstance(row, dict)]

    return read
