"""What the end of an attempt says about its replica: whether it is trusted, left alone for a while, or ejected. Pure.

Invariants: a 4xx is the client's fault and 429 and 503 are back-pressure, neither is a failure; failures count in a row, a
success forgets them; who is on trial is ejected by one failure and trusted after one success.
"""

from __future__ import annotations

from reward_loop.router.fleet import LATENCY_BOUNDS_S, Fleet, Pool, Replica

SMOOTHING = 0.1
"""Weight of a new latency in the moving averages."""
RECENT_S = 10.0
"""How long a success vouches for a replica."""
SUSPICIOUS_REJECTS = 5
"""4xx in a row, with no success between them, that make the successes before them count no more."""
MAX_BUSY_S = 60.0
_FIRST_BUSY_S = 0.1
_LAST_BUSY_S = 2.0
_BUCKETS = len(LATENCY_BOUNDS_S)
_TO_BUCKET = 1 / LATENCY_BOUNDS_S[0]


class Ejection:
    """Keeps the replicas' record; ejects after `eject_after` failures in a row."""

    def __init__(self, fleet: Fleet, eject_after: int) -> None:
        self._fleet = fleet
        self._eject_after = eject_after

    def succeeded(self, pool: Pool, replica: Replica, now: float, latency_s: float) -> None:
        """Note a 2xx or 3xx."""
        replica.outcomes["ok"] += 1
        replica.last_ok_at = now
        replica.latency_s += (latency_s - replica.latency_s) * (SMOOTHING if replica.latency_s else 1.0)
        pool.latency_s += (latency_s - pool.latency_s) * (SMOOTHING if pool.latency_s else 1.0)
        replica.latency_sum_s += latency_s
        bucket = int(latency_s * _TO_BUCKET).bit_length()
        replica.latency_counts[bucket if bucket < _BUCKETS else _BUCKETS] += 1  # noqa: FURB136 - min() costs every request a call
        if replica.marked:
            replica.marked = False
            replica.failures_in_row = replica.rejects_in_row = replica.busy_in_row = 0
            replica.busy_until = 0.0
            replica.on_trial = False
            pool.refresh(now)

    def rejected(self, replica: Replica) -> None:
        """Note a 4xx."""
        replica.outcomes["rejected"] += 1
        replica.rejects_in_row += 1
        replica.marked = True

    def is_suspect(self, pool: Pool, replica: Replica, now: float) -> bool:
        """Whether a 400 or 404 may be the replica's own fault: no success of late, while a sibling has one."""
        if now - replica.last_ok_at < RECENT_S and replica.rejects_in_row < SUSPICIOUS_REJECTS:
            return False
        return any(now - other.last_ok_at < RECENT_S for other in pool.active if other is not replica)

    def busy(self, pool: Pool, replica: Replica, now: float, retry_after_s: float | None) -> None:
        """Note a 429 or 503: leave the replica alone as long as it said, else a little, and longer each time in a row."""
        replica.outcomes["busy"] += 1
        wait_s = min(_FIRST_BUSY_S * 2**replica.busy_in_row, _LAST_BUSY_S) if retry_after_s is None else retry_after_s
        replica.busy_in_row = min(replica.busy_in_row + 1, 10)
        replica.busy_until = now + min(wait_s, MAX_BUSY_S)
        replica.marked = True
        pool.even = False

    def failed(self, replica: Replica, trouble: str, *, answers: bool = False) -> None:
        """Note a failure; `answers`: it was a 5xx."""
        replica.failures_in_row += 1
        replica.marked = True
        replica.trouble = trouble
        if replica.on_trial or replica.failures_in_row >= self._eject_after:
            self._fleet.eject(replica, trouble, answers=answers)
