"""How old the weights are that scored a sample, against the newest ones that are known.

Invariants: no clock, no I/O but the log; a version that is seen or told only ever raises what counts as newest.
"""

from __future__ import annotations

import logging
from typing import Literal

from reward_loop.errors import ConfigError, WeightSyncError

logger = logging.getLogger(__name__)

OnStale = Literal["warn", "raise"]


class Staleness:
    """Complains of weights that are more than `limit` versions behind; None: of none, 0: of all but the newest."""

    def __init__(self, limit: int | None = None, on_stale: OnStale = "warn") -> None:
        if limit is not None and limit < 0:
            raise ConfigError(f"max_staleness={limit} must be None, or a number of versions from 0")
        if on_stale not in ("warn", "raise"):
            raise ConfigError(f"on_stale={on_stale!r} must be warn or raise")
        self._limit = limit
        self._on_stale: OnStale = on_stale
        self._newest: int | None = None
        self._warned: set[int] = set()

    @property
    def newest(self) -> int | None:
        """The newest version that is known; None before there was any."""
        return self._newest

    def told(self, version: int) -> None:
        """Know of a version: it was published, or has scored."""
        if self._newest is None or version > self._newest:
            self._newest = version

    def check(self, version: int | None) -> None:
        """Note which version scored (None: the server did not say), and complain if it is too old.

        That is a warning in the log, once for each version, or WeightSyncError.
        """
        if version is None:
            return
        self.told(version)
        behind = (self._newest or 0) - version
        if self._limit is None or behind <= self._limit:
            return
        complaint = (
            f"weights of version {version} scored, {behind} versions behind {self._newest}, the newest that is known, and "
            f"max_staleness={self._limit}: publish to every server of the model, or raise it"
        )
        if self._on_stale == "raise":
            raise WeightSyncError(complaint)
        if version not in self._warned:
            self._warned.add(version)
            logger.warning("%s", complaint)
