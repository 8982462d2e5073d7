"""When a request that failed is sent once more. Pure: no clock, no I/O; who asks passes in the time and the luck.

Invariant: what a service has decided (any 4xx but 429, a plain 500, a time-out, "asleep") is final.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fate = Literal["final", "not begun", "lost"]
"""Whether a failed request was decided, was never begun (asking again is free), or was perhaps worked on and lost."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LOST_ATTEMPTS = 3
"""A request that brings servers down must not be sent to all of them."""

_NOT_BEGUN = {429, 503}
_LOST = {502}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request that was not begun is sent again: `attempts` in all, or (None) until the deadline."""

    attempts: int | None = None

    def pause_s(self, fate: Fate, attempt: int, left_s: float, luck: float, retry_after_s: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt, after `attempt` of them; None to give up.

        `luck` from 0 to 1 spreads those that failed together. What a service asks for by Retry-After is waited for in full, or,
        where the deadline is nearer (`left_s`), not at all.
        """
        most = LOST_ATTEMPTS if fate == "lost" else self.attempts
        if fate == "final" or (most is not None and attempt >= most):
            return None
        backoff = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 16)) * (0.5 + luck / 2)
        pause = (retry_after_s or 0.0) + backoff
        return pause if pause < left_s else None


UNTIL_THE_DEADLINE = Patience()


def fate_of(status: int, asleep: bool) -> Fate:
    """Return what became of a request that was answered with an error."""
    if asleep:
        return "final"  # asking again would keep awake who wants to sleep
    return "not begun" if status in _NOT_BEGUN else "lost" if status in _LOST else "final"
