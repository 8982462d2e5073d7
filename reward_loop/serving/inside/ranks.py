"""The ranks of one server agree on a commit: by files in its update directory, as all are on one machine.

Not by a collective operation: vLLM's groups differ between its executors, and replicas of data parallelism may share none.
Invariant: what is to be kept is kept by the first rank, once all have succeeded and before any of them is told so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.update_directory import UpdateDirectory

_LOOK_S = 0.005


class Ranks:
    """Rank `rank` of `size`, of all replicas of data parallelism together; the first leads: it receives, and keeps the record."""

    def __init__(self, directory: UpdateDirectory, rank: int, size: int, *, timeout_s: float = 120.0) -> None:
        """`timeout_s`: how long the others may take longer than this one."""
        self._directory = directory
        self._rank = rank
        self._others = [other for other in range(size) if other != rank]
        self._timeout_s = timeout_s

    @property
    def leads(self) -> bool:
        """Whether this is the first rank."""
        return self._rank == 0

    def forget(self) -> None:
        """Take back what this rank has said."""
        (self._directory.path / _file(self._rank)).unlink(missing_ok=True)

    def agree(self, session: str, why: str, keep: Callable[[], None]) -> str:
        """Tell the others `why` it failed here ("": it did not) and return why it failed anywhere.

        If it failed nowhere, the first rank calls `keep`, whose exception is a failure of all.
        """
        if not self._others:
            return why or _kept(keep)
        if not self.leads:
            self._say(session, why)
            return "; ".join(self._heard(session, [0]))
        failures = [why, *self._heard(session, self._others)]
        verdict = "; ".join(filter(None, failures)) or _kept(keep)
        self._say(session, verdict)
        return verdict

    def _say(self, session: str, why: str) -> None:
        self._directory.write(_file(self._rank), {"session": session, "why": why})

    def _heard(self, session: str, ranks: Iterable[int]) -> list[str]:
        """Wait for these ranks and return what they say; one that says nothing in time has failed."""
        until = time.monotonic() + self._timeout_s
        return [self._of(rank, session, until) for rank in ranks]

    def _of(self, rank: int, session: str, until: float) -> str:
        while True:
            try:
                said = self._directory.read(_file(rank))
            except WeightSyncError as error:
                return str(error)
            if said is not None and said["session"] == session:
                return str(said["why"])
            if time.monotonic() > until:
                return f"rank {rank} did not say within {self._timeout_s:g} s how its commit went"
            time.sleep(_LOOK_S)


def _kept(keep: Callable[[], None]) -> str:
    try:
        keep()
    except Exception as error:  # noqa: BLE001 - whatever it is, all ranks have to be told that it failed
        return f"{type(error).__name__}: {error}"
    return ""


def _file(rank: int) -> str:
    return f"rank-{rank}.json"
