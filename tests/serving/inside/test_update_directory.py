"""What a server keeps of its updates, also when it is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.update_directory import VARIABLE, Record, Status, UpdateDirectory
from tests.processes import ROOT
from tests.serving.inside.killed_commits import NEW, OLD, committed, staged


def kept(directory: UpdateDirectory) -> dict[str, str]:
    """Return the bytes that the record names, by the name of their tensor."""
    return {name: (directory.path / file).read_text() for name, file in directory.record().tensors.items()}


def test_without_a_commit_the_checkpoint_serves_as_version_0(tmp_path: Path) -> None:
    directory = UpdateDirectory(tmp_path / "not_there")
    assert directory.record() == Record(version=0, tensors={}, updated=False)
    assert directory.previous() is None
    assert directory.status("any") is None


def test_a_status_is_that_of_its_session(tmp_path: Path) -> None:
    directory = UpdateDirectory(tmp_path)
    status = Status("b", "received", details={"digests": ["x"]})
    directory.note(Status("a", "failed", "no room"))
    directory.note(status)
    assert (directory.status("a"), directory.status("b")) == (None, status)


def test_the_environment_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    named = UpdateDirectory.of("x")
    assert (named.path, named.lasting) == (tmp_path, True)
    monkeypatch.delenv(VARIABLE)
    assert UpdateDirectory.of("x").path != UpdateDirectory.of("y").path
    assert not UpdateDirectory.of("x").lasting


def test_a_commit_replaces_the_tensors_that_it_holds(tmp_path: Path) -> None:
    directory = UpdateDirectory(tmp_path)
    staged(directory, 0)
    directory.commit(0, ["a", "b"])
    staged(directory, 7)
    directory.commit(7, ["b"])
    assert (directory.record().version, kept(directory)) == (7, {"a": "0", "b": "7"})
    assert not directory.staged.exists()


def test_a_revert_goes_back_once(tmp_path: Path) -> None:
    directory = committed(tmp_path, 1, 2)
    directory.revert()
    assert (directory.record().version, kept(directory)) == (1, {"score.weight": "1"})
    with pytest.raises(WeightSyncError, match="no update to take back"):
        directory.revert()
    staged(directory, 2)
    directory.commit(2, ["score.weight"])  # the version that was taken back may come again
    assert kept(directory) == {"score.weight": "2"}


def test_only_files_that_serve_or_may_serve_again_are_needed(tmp_path: Path) -> None:
    directory = committed(tmp_path, 1, 2, 3)
    assert [file.read_text() for file in directory.obsolete()] == ["1"]
    directory.forget()
    assert (directory.record(), directory.previous()) == (Record(3, {}, updated=True), None)
    assert len(directory.obsolete()) == 3


def test_what_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    directory = committed(tmp_path, 1)
    staged(directory, 2)
    for name in (".record.json-x1", "rank-3.json", "version-9-dead.safetensors"):
        (tmp_path / name).write_text("half")
    directory.tidy()
    assert sorted(file.name.partition("-")[0] for file in tmp_path.iterdir()) == ["previous.json", "record.json", "version"]
    assert kept(directory) == {"score.weight": "1"}


def test_a_damaged_record_is_named_with_the_remedy(tmp_path: Path) -> None:
    directory = committed(tmp_path, 1)
    (tmp_path / "record.json").write_text('{"version": 1, "tens')
    with pytest.raises(WeightSyncError, match=r"record\.json is damaged .*; remove .*, and sync the weights again"):
        directory.record()


@pytest.mark.parametrize("what", ["commit", "revert"])
def test_a_kill_at_any_moment_leaves_the_old_version_or_the_new_one(what: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.serving.inside.killed_commits", str(tmp_path), what], cwd=ROOT, timeout=60, check=True
    )
    found = list[int]()
    for path in sorted(tmp_path.iterdir(), key=lambda path: int(path.name)):
        directory = UpdateDirectory(path)
        directory.tidy()
        assert kept(directory) == {"score.weight": str(directory.record().version)}
        found.append(directory.record().version)
        assert len(list(path.glob("version-*"))) <= 2
        assert kept(committed(path, NEW + 1)) == {"score.weight": str(NEW + 1)}  # the next update succeeds
    before, after = (OLD, NEW) if what == "commit" else (NEW, OLD)
    done = found.index(after)
    assert found == [before] * done + [after] * (len(found) - done)
    assert done > 3  # it was killed between its writes too
