"""JSON Lines of data."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reward_loop.errors import DataError
from reward_loop.rinker.loops.json_rows import read_rows


def test_each_line_is_a_row(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text('{"a": 1}\n\n{"a": 2}\n')
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_rows(plain) == read_rows(packed) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "wrong"), [("", "holds no rows"), ("{}\n[1]\n", r"line 2: \[1\] is no object"), ("{a}\n", "line 1: no JSON")]
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError, match=wrong):
        read_rows(tmp_path / "a.jsonl")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read"):
        read_rows(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="can't be read"):
        read_rows(tmp_path / "b.jsonl")
