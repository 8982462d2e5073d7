"""Several ranks, each in a thread, agree on a commit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reward_loop.serving.inside.ranks import Ranks
from reward_loop.serving.inside.update_directory import UpdateDirectory


class Kept:
    """Counts what was kept."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self._error = error

    def __call__(self) -> None:
        """Keep it."""
        if self._error is not None:
            raise self._error
        self.times += 1


def verdicts(path: Path, whys: Sequence[str], kept: Kept, *, session: str = "s") -> list[str]:
    """Let a rank for each of `whys` say that, and return what each hears."""
    ranks = [Ranks(UpdateDirectory(path), rank, len(whys), timeout_s=20) for rank in range(len(whys))]
    with ThreadPoolExecutor(len(whys)) as threads:
        return list(threads.map(lambda rank, why: rank.agree(session, why, kept), ranks, whys))


@pytest.mark.parametrize("size", [1, 3])
def test_what_all_have_done_is_kept_once(size: int, tmp_path: Path) -> None:
    kept = Kept()
    assert verdicts(tmp_path, [""] * size, kept) == [""] * size
    assert kept.times == 1


@pytest.mark.parametrize("whys", [["no room"], ["no room", "", ""], ["", "", "no room"]])
def test_what_failed_on_one_failed_on_all_and_is_not_kept(whys: list[str], tmp_path: Path) -> None:
    kept = Kept()
    assert verdicts(tmp_path, whys, kept) == ["no room"] * len(whys)
    assert kept.times == 0


def test_what_could_not_be_kept_failed_on_all(tmp_path: Path) -> None:
    assert verdicts(tmp_path, ["", ""], Kept(OSError("disk full"))) == ["OSError: disk full"] * 2


def test_what_was_said_of_another_update_does_not_count(tmp_path: Path) -> None:
    verdicts(tmp_path, ["no room", "no room"], Kept(), session="before")
    assert verdicts(tmp_path, ["", ""], Kept()) == ["", ""]


def test_a_rank_that_says_nothing_has_failed(tmp_path: Path) -> None:
    kept = Kept()
    assert (
        Ranks(UpdateDirectory(tmp_path), 0, 2, timeout_s=0.05).agree("s", "", kept).startswith("rank 1 did not say within 0.05 s")
    )
    assert kept.times == 0


def test_a_rank_that_forgets_says_nothing(tmp_path: Path) -> None:
    verdicts(tmp_path, ["", ""], Kept())
    Ranks(UpdateDirectory(tmp_path), 1, 2).forget()
    assert Ranks(UpdateDirectory(tmp_path), 0, 2, timeout_s=0.05).agree("s", "", Kept()) != ""
