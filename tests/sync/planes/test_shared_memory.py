"""The plane of /dev/shm: nothing is left there, and nothing is written where there is no room."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.planes.leftovers import abandoned, lock
from reward_loop.sync.planes.shared_memory import SharedMemorySender
from tests.sync.planes.ends import PATIENCE_S, manifest_of, weights

SHARED = Path("/dev/shm")


def test_before_anyone_has_joined_there_is_no_file_that_a_kill_could_leave() -> None:
    before = set(SHARED.iterdir())
    with closing(SharedMemorySender()) as comm:
        comm.open(manifest_of(weights()), 1, PATIENCE_S)
        comm.buffer(0).fill_(1)
        assert set(SHARED.iterdir()) - before == set()


def test_what_a_killed_trainer_left_is_removed_by_the_next_one() -> None:
    left = SHARED / f"reward-loop-weights-{os.getpid()}-left"
    used = SHARED / f"reward-loop-weights-{os.getpid()}-used"
    left.write_bytes(b"weights")
    with used.open("wb") as file, closing(SharedMemorySender()) as comm:
        lock(file.fileno())
        comm.open(manifest_of(weights()), 1, PATIENCE_S)
        assert not left.exists()
        assert used.exists()
    used.unlink()


def test_what_is_gone_or_locked_is_not_abandoned(tmp_path: Path) -> None:
    locked, free = tmp_path / "locked", tmp_path / "free"
    locked.mkdir()
    free.mkdir()
    file = os.open(locked, os.O_RDONLY)
    lock(file)
    assert list(abandoned([locked, tmp_path / "gone", free])) == [free]
    os.close(file)
    assert list(abandoned([locked])) == [locked]


def test_buckets_for_which_there_is_no_room_are_refused_before_they_are_written() -> None:
    huge = Manifest.of([TensorSpec("embed", "float32", (1 << 44,))], 1 << 45)
    with closing(SharedMemorySender()) as comm, pytest.raises(WeightSyncError, match="no 67108864 MiB of shared memory"):
        comm.open(huge, 1, PATIENCE_S)
    with pytest.raises(WeightSyncError, match="is not open"):
        comm.buffer(0)
