"""Waiting for processes of others to be gone, without a clock."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository: the working directory of programs that import the package or the tests."""


def wait_until_gone(pids: Iterable[int], wait_s: float = 20.0) -> None:
    """Return when none of these processes is alive any more; TimeoutError names one that is."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([process], [], [], wait_s)[0]:
                raise TimeoutError(f"process {pid} is still alive: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
        finally:
            os.close(process)


def parent_of(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
