"""How much work a grader process is handed at a time, and when more processes than usual are worth it. Pure.

More processes than cores make each slower, so they are only added for samples that look stuck: those that have run many times
longer than samples do, so that a hanging one holds up nobody for the time until its deadline.
"""

from __future__ import annotations

import math

_HANDED_OVER_S = 0.01
_MOST_SAMPLES = 64
_STUCK_AT_LEAST_S = 0.02
_STUCK_MULTIPLE = 10.0
_STUCK_SHARE = 0.05
_MEMORY = 0.05


class SampleTime:
    """A running estimate of the time that a sample takes, in seconds; None before the first has ended."""

    def __init__(self) -> None:
        self.mean_s: float | None = None

    def ended(self, seconds: float) -> None:
        """Take a sample into account."""
        self.mean_s = seconds if self.mean_s is None else (1 - _MEMORY) * self.mean_s + _MEMORY * seconds


def handed_over(mean_s: float | None, waiting: int, processes: int) -> int:
    """Return how many samples a process should have before it, the one under way included.

    About 10 ms of work, so that functions of microseconds don't pay for a hand-over each, but never so many that another
    process would have to idle.
    """
    if mean_s is None:
        return 1
    worth = int(_HANDED_OVER_S / max(mean_s, 1e-9)) + 1
    return max(1, min(worth, _MOST_SAMPLES, waiting // (2 * processes) + 1))


def stuck_after(mean_s: float | None, timeout_s: float | None, processes: int, usual: int) -> float:
    """Return the seconds after which a sample looks stuck.

    Before any sample has ended nobody knows how long they take: a twentieth of the deadline, and twice as long each time that
    the number of processes was raised by the usual one in vain.
    """
    if mean_s is not None:
        return max(_STUCK_AT_LEAST_S, _STUCK_MULTIPLE * mean_s)
    if timeout_s is None:
        return float("inf")
    raised = max(0, processes // usual - 1)
    return float(max(_STUCK_AT_LEAST_S, _STUCK_SHARE * timeout_s) * 2**raised)


def niceness(stuck: int, usual: int) -> int:
    """Return how far `stuck` processes yield so that together they take about a quarter of what the `usual` others get."""
    # Each step of nice is a factor of 1.25 in the share of the processor (sched(7)).
    return max(0, min(19, round(math.log(max(1.0, 4 * stuck / usual), 1.25))))
