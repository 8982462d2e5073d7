"""The file of changes: written before a change holds, read when a process starts again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rubrics.audit import keep_audit, read_audit
from reward_loop.rubrics.live_config import LiveConfig
from tests.rubrics.live import live_config, weights_of


def kept(path: Path, **weights: float) -> LiveConfig:
    live = live_config(None, **weights)
    keep_audit(live, path, now=1.0)
    return live


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_start_and_every_change_are_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.jsonl"
    live = kept(path)
    live.propose({"weights": {"task": 0.5}}, now=2.0, who="anna")
    live.propose({}, now=3.0)
    live.propose({"enabled": {"style": False}, "apply": "immediate"}, now=4.0)
    start, first, second = lines(path)
    assert start.pop("base") == live.base.as_dict()
    begun = {"weights": {"task": 1.0, "style": 1.0, "outcome": 1.0}, "enabled": {"task": True, "style": True, "outcome": True}}
    assert start == {"version": 1, "time": 1.0, "who": "start", "old": {}, "new": begun, "applies": "immediate"}
    new, old = {"weights": {"task": 0.5}}, {"weights": {"task": 1.0}}
    assert first == {"version": 2, "time": 2.0, "who": "anna", "old": old, "new": new, "applies": "next_reset"}
    assert (second["version"], second["new"], second["applies"]) == (3, {"enabled": {"style": False}}, "immediate")


def test_a_process_that_starts_again_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first = kept(path)
    first.propose({"weights": {"task": 0.5}, "config": {"style": {"threshold": 0.75}}}, now=2.0)
    second = kept(path)
    assert (second.pending, second.latest_version) == (first.pending, 2)
    second.propose({"weights": {"task": 0.25}}, now=3.0)
    assert [change.version for change in read_audit(path)] == [1, 2, 3]
    assert weights_of(kept(path).pending)["task"] == 0.25


def test_a_line_that_was_cut_off_is_dropped_and_the_next_one_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    kept(path).propose({"weights": {"task": 0.5}}, now=2.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"version": 3, "time": 3.0, "who": "an')
    live = kept(path)
    assert live.latest_version == 2
    assert "cut off" in caplog.text
    live.propose({"weights": {"task": 0.25}}, now=4.0)
    assert [change.version for change in read_audit(path)] == [1, 2, 3]


def test_changes_of_another_configuration_are_not_laid_over_this_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    kept(path).propose({"weights": {"task": 0.5}}, now=2.0)
    with pytest.raises(ConfigError, match=r"style.* is 1\.0 there and 2\.0 here|\[1\]\.weight is 1\.0 there and 2\.0 here"):
        kept(path, style=2.0)


@pytest.mark.parametrize("wrong", ["no json\n", "[]\n", "{}\n", '{"version": 2, "time": 1.0, "who": "a", "old": [], "new": 3}\n'])
def test_a_line_that_is_no_change_is_refused_with_its_number(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "audit.jsonl"
    kept(path)
    path.write_text(path.read_text("utf-8") + wrong, encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2"):
        kept(path)


CHANGE_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.rubrics.live import weights_of
from tests.rubrics.test_audit import kept
path, room = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
live = kept(Path(path))
try:
    live.propose({"weights": {"task": 0.5}}, now=2.0)
except OSError as error:
    print(error.strerror, live.latest_version, weights_of(live.pending)["task"])
"""


def test_a_full_disk_refuses_the_change_and_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    kept(path)
    before = path.read_bytes()
    # In a process of its own: the limit counts for every file, so also for one that takes this process's output.
    command = [sys.executable, "-c", CHANGE_ON_A_FULL_DISK, str(path), str(len(before) + 10)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert child.stdout in ("no room for the whole line 1 1.0\n", "File too large 1 1.0\n"), child.stderr
    assert path.read_bytes() == before


def test_a_file_that_can_not_be_written_is_an_error_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("")
    with pytest.raises(ConfigError, match="folder"):
        kept(tmp_path / "folder" / "audit.jsonl")
    assert (tmp_path / "folder").is_file()
