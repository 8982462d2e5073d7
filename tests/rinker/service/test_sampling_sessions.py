from __future__ import annotations

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.service.sampling_sessions import Published, SamplingSessions


def held(name: str) -> Published:
    return Published(Snapshot(name, "base", weights={"w": torch.zeros(1)}))


def test_the_snapshot_that_was_used_least_recently_is_forgotten() -> None:
    sessions = SamplingSessions(max_sessions=10, max_snapshots=2)
    first, second = sessions.open(held("a")), sessions.open(held("b"))
    assert sessions.snapshot(first).id == "a"
    third = sessions.open(held("c"))
    assert [sessions.snapshot(one).id for one in (first, third)] == ["a", "c"]
    with pytest.raises(
        RequestFailedError, match="are no longer kept: 2 other unnamed snapshots were used since; save them under a name"
    ):
        sessions.snapshot(second)


def test_what_lies_on_the_disk_is_not_forgotten() -> None:
    sessions = SamplingSessions(max_sessions=10, max_snapshots=1)
    opened = [sessions.open(Published(Snapshot(str(n), "base"))) for n in range(3)]
    assert [sessions.snapshot(one).id for one in opened] == ["0", "1", "2"]


def test_sessions_beyond_the_limit_are_forgotten() -> None:
    sessions = SamplingSessions(max_sessions=1, max_snapshots=9)
    first = sessions.open(held("a"))
    sessions.open(held("b"))
    with pytest.raises(RequestFailedError, match=f"there is no sampling session {first}"):
        sessions.snapshot(first)


def test_weights_go_with_the_last_session_that_has_them() -> None:
    sessions = SamplingSessions(max_sessions=9, max_snapshots=9)
    shared = held("a")
    first, second = sessions.open(shared), sessions.open(shared)
    sessions.close(first)
    assert sessions.snapshot(second).id == "a"
    sessions.close(second)
    assert shared.snapshot is None
    sessions.close(second)  # once more: nothing to do
