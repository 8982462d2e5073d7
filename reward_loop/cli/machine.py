"""What the operating system lets this process use: cores, memory, shared memory, open files.

Invariants: a container's own limits count where they are tighter than the machine's; nothing is read of the environment.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reward_loop.machine import usable_cores


@dataclass(frozen=True, slots=True)
class Machine:
    """The share of a machine that one process has; bytes and counts, None where it can't be told."""

    cores: float
    memory: int | None
    shared_memory: int | None
    open_files: int
    most_open_files: int


def this_machine(root: Path = Path("/")) -> Machine:
    """Read what this process may use; `root` is where the machine's /proc, /sys and /dev are looked for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shared = root / "dev" / "shm"
    return Machine(_cores(root), _memory(root), shutil.disk_usage(shared).total if shared.is_dir() else None, soft, hard)


def _cores(root: Path) -> float:
    cores = float(usable_cores())
    for group in _control_groups(root, "cpu"):
        quota, period = [*_numbers(group / "cpu.max"), None, None][:2]
        if quota is None:  # version 1
            quota, period = next(_numbers(group / "cpu.cfs_quota_us"), None), next(_numbers(group / "cpu.cfs_period_us"), None)
        if quota and period and quota > 0:
            cores = min(cores, quota / period)
    return cores


def _memory(root: Path) -> int | None:
    sizes = [kibibytes << 10 for kibibytes in _numbers(root / "proc" / "meminfo", "MemTotal:")]
    for group in _control_groups(root, "memory"):
        sizes += [*_numbers(group / "memory.max"), *_numbers(group / "memory.limit_in_bytes")]
    return min(sizes, default=None)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """The control groups, of either version, that this process is in: each limits it."""
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", controller) and controller not in controllers.split(","):
            continue
        mount = root / "sys" / "fs" / "cgroup" / (controller if controllers else "")
        group = mount / path.lstrip("/")
        yield from (part for part in (group, *group.parents) if part.is_relative_to(mount))


def _numbers(file: Path, label: str = "") -> Iterator[int]:
    """The whole numbers of a file's first line that begins with `label`; none of a file that isn't there or says "max"."""
    line = next((line for line in _text(file).splitlines() if line.startswith(label)), "")
    return (int(word) for word in line.split() if word.lstrip("-").isdecimal())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError:
        return ""
