"""The plane of a directory: what lies there can be read by anyone who reads safetensors, and goes with the update."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.directory import NAME, DirectorySender
from tests.sync.planes.ends import PATIENCE_S, manifest_of, send, serve, weights


def test_without_receivers_it_is_a_checkpoint_until_it_is_closed(tmp_path: Path) -> None:
    with closing(DirectorySender(tmp_path / "new")) as comm:
        assert comm.open(manifest_of(weights()), 0, PATIENCE_S) == []
        assert not (comm.folder / NAME).exists()
        send(comm, weights())
        found = load_file(comm.folder / NAME)
        assert list(comm.folder.iterdir()) == [comm.folder / NAME]
    assert found.keys() == weights().keys()
    for name, tensor in weights().items():
        assert torch.equal(found[name], tensor)
    assert list((tmp_path / "new").iterdir()) == []


def test_what_a_killed_trainer_left_is_removed_by_the_next_one_once_it_is_old(tmp_path: Path) -> None:
    first = DirectorySender(tmp_path)
    first.open(manifest_of(weights()), 0, PATIENCE_S)
    left, new = Path(f"{first.folder}-left"), Path(f"{first.folder}-new")
    other = tmp_path / "update-00000000-of-another-machine"
    for folder in (left, new, other):
        folder.mkdir()
    for folder in (left, other, first.folder):
        os.utime(folder, (0, time.time() - 3600))
    with closing(first), closing(DirectorySender(tmp_path)) as second:
        second.open(manifest_of(weights()), 0, PATIENCE_S)
        assert {*tmp_path.iterdir()} == {first.folder, second.folder, new, other}


def test_a_directory_that_servers_do_not_see_is_said_to_be(tmp_path: Path) -> None:
    with closing(DirectorySender(tmp_path)) as comm:
        [ticket] = comm.open(manifest_of(weights()), 1, PATIENCE_S)
        with serve({**ticket, "path": "/nowhere/model.safetensors"}) as server:
            with pytest.raises(WeightSyncError, match="receiver 1 gave up"):
                send(comm, weights())
            assert "trainer and servers must see the same directory" in str(server.told())


def test_a_directory_that_can_not_be_written_is_an_error_of_the_plane(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightSyncError, match="no file can be written in"):
        DirectorySender(tmp_path / "file" / "below").open(manifest_of(weights()), 1, PATIENCE_S)


def test_a_directory_must_be_named() -> None:
    with pytest.raises(WeightSyncError, match="needs directory="):
        communicator_of("directory")
