"""What this process may use of its machine."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_per_worker(workers: int) -> int:
    """Return how many cores each of so many workers of this machine gets; at least 1."""
    return max(1, -(-usable_cores() // workers))
