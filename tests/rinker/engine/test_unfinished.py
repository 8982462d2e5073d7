"""What killed processes left behind is removed, and what others are writing is not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reward_loop.rinker.engine.unfinished import sweep, take_place, unfinished_prefix
from tests.rinker.engine.models import names


def test_only_what_a_dead_process_of_this_machine_left_is_removed(tmp_path: Path) -> None:
    program = (
        "import tempfile, sys; from reward_loop.rinker.engine.unfinished import unfinished_prefix as prefix; "
        "tempfile.mkdtemp(prefix=prefix(), dir=sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    [left] = names(tmp_path)
    mine = Path(tempfile.mkdtemp(prefix=unfinished_prefix(), dir=tmp_path)).name
    others = [".unfinished-another.machine-1-abc", ".unfinished-", "checkpoint", ".unfinished-x-99999999999999999999-y"]
    for name in others:
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert left not in names(tmp_path)
    assert names(tmp_path) == sorted([mine, *others])


def test_what_has_a_name_keeps_it_until_another_has_it(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    for text in ("first", "second"):
        (tmp_path / "written").mkdir()
        (tmp_path / "written" / "file").write_text(text)
        take_place(tmp_path / "written", directory)
        assert (directory / "file").read_text() == text
    with pytest.raises(FileNotFoundError):
        take_place(tmp_path / "nothing", directory)
    assert (directory / "file").read_text() == "second"
    assert names(tmp_path) == ["checkpoint"]
