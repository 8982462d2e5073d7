"""When a server that crashed is started again, and when it is given up. Pure: the caller says what time it is."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_S = 60.0
_STEADY_S = 60.0
"""Seconds of service after which a server has left its crashes behind."""


@dataclass(slots=True)
class Restarts:
    """Counts crashes in a row; after more than `most` of them there is no restart."""

    most: int
    backoff_s: float
    in_row: int = 0
    ready_at: float | None = None
    """When it last became ready, until it crashes."""

    def pause_s(self, now: float) -> float | None:
        """Count a crash, or a start that failed; return the seconds before the next start, None to give up."""
        if self.ready_at is not None and now - self.ready_at > _STEADY_S:
            self.in_row = 0
        self.ready_at = None
        self.in_row += 1
        if self.in_row > self.most:
            return None
        return min(_LONGEST_S, self.backoff_s * 2.0 ** (self.in_row - 1))
