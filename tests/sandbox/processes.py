"""What the tests look at from outside: the processes of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path


def descendants_of(pid: int) -> set[int]:
    """The processes below one, at any depth."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # gone
                continue
            parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return found


async def becomes_true(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether a condition comes true before long."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
