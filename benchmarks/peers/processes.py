"""Processes that are measured: started on one core, read from outside, and ended with everything that they started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

STOP_S = 5.0
_MIB = 1024.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A running process that listens on a port of the loopback."""

    name: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_us(self) -> float:
        """Return the microseconds that its threads, ended ones included, and those of its children have computed so far."""
        # The clock that clock_getcpuclockid() gives: exact, where the times of /proc/PID/stat come in ticks of 10 ms.
        return sum(time.clock_gettime_ns(~pid << 3 | 2) for pid in _family(self.pid)) / 1e3

    def memory_mib(self) -> tuple[float, float]:
        """Return the resident and the proportional set size, children included."""
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").split() for pid in _family(self.pid)]
        sizes = [[int(words[words.index(f"{size}:") + 1]) / _MIB for words in rollups] for size in ("Rss", "Pss")]
        return sum(sizes[0]), sum(sizes[1])


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], core: int, log: Path, stdin: int | None = None) -> Generator[subprocess.Popen[str]]:
    """Run a command on one core, in a process group that is ended with the block; what it complains of goes to the log."""
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, end)
                process.wait(STOP_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def first_line(process: subprocess.Popen[str], log: Path) -> str:
    """Return the line that a process prints when it is ready."""
    stdout: IO[str] | None = process.stdout
    line = stdout.readline() if stdout is not None else ""
    if not line:
        raise RuntimeError(f"{process.args!r} did not start: {log.read_text('utf-8')[-2000:]}")
    return line


def _family(pid: int) -> list[int]:
    """Return the process and all that descend from it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text("utf-8").rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since the listing
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family
