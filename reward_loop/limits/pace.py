"""How fast a limited service is used over time: at full rate, slowed down after a 429, or not at all.

Time spent at half the rate counts half: `work` is what has been done of it, in seconds at full rate. Invariants: work never
decreases; after a slow-down the share of the full rate falls by a factor and rises again by a constant amount per second
(additive increase, multiplicative decrease, as TCP's congestion control).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SLOW_DOWN = 0.7
"""What one slow-down leaves of the rate."""
SLOWEST = 0.1
"""The share of the full rate that slow-downs never go below."""
RECOVERY_PER_S = 0.01
"""The share of the full rate that comes back with each second."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Nothing until `since`; from there on `share` of the full rate, rising. `done` is the work by then."""

    since: float
    done: float = 0.0
    share: float = 1.0

    def share_at(self, now: float) -> float:
        """Return the share of the full rate at a time; during a halt, the one that follows it."""
        return min(1.0, self.share + RECOVERY_PER_S * max(0.0, now - self.since))

    def time_of_share(self, share: float) -> float:
        """Return when a share of the full rate is reached."""
        return self.since + max(0.0, share - self.share) / RECOVERY_PER_S

    def work_at(self, now: float) -> float:
        """Return the work done by a time."""
        running = max(0.0, now - self.since)
        rising = min(running, self._rising_s)
        return self.done + self._gain(rising) + running - rising

    def time_of(self, work: float) -> float:
        """Return when so much work will be done, `since` at the earliest."""
        missing = work - self.done
        if missing <= 0:
            return self.since
        if missing >= (gain := self._gain(self._rising_s)):
            return self.since + self._rising_s + missing - gain
        return self.since + (math.sqrt(self.share**2 + 2 * RECOVERY_PER_S * missing) - self.share) / RECOVERY_PER_S

    def slowed(self, now: float) -> Pace:
        """Return the pace that goes on more slowly from `now` on."""
        return Pace(max(now, self.since), self.work_at(now), max(SLOWEST, SLOW_DOWN * self.share_at(now)))

    def halted(self, now: float, until: float) -> Pace:
        """Return the pace that stands still from `now` to `until`, or longer if it does already."""
        return Pace(max(until, now, self.since), self.work_at(now), self.share_at(now))

    @property
    def _rising_s(self) -> float:
        return (1.0 - self.share) / RECOVERY_PER_S

    def _gain(self, rising_s: float) -> float:
        return rising_s * (self.share + RECOVERY_PER_S * rising_s / 2)
