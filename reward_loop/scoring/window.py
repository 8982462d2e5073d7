"""When the samples that wait leave as one request. Pure: no clock, no I/O; who asks passes in the time.

Invariant: a batch never leaves while `max_in_flight` others are under way, and never with more than `max_batch` samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from reward_loop.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Window:
    """How many samples travel together, how long the first of them waits for the others, and how many batches are under way."""

    max_batch: int = 64
    max_wait_s: float = 0.002
    max_in_flight: int = 8

    def __post_init__(self) -> None:
        if self.max_batch < 1 or self.max_in_flight < 1 or not 0 <= self.max_wait_s < float("inf"):
            raise ConfigError(f"{self}: max_batch and max_in_flight must be at least 1, and the wait finite and not negative")

    def leaves_at(self, waiting: int, since: float, in_flight: int) -> float | None:
        """Return the time at which the next batch leaves (in the past: at once); None while it can't.

        `waiting` samples wait, the first of them `since` that time. A server with nothing to do gets what there is at once.
        """
        if not waiting or in_flight >= self.max_in_flight:
            return None
        return since if waiting >= self.max_batch or not in_flight else since + self.max_wait_s
