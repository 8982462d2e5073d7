"""The processes below one, the memory that they hold together, and the shared memory that they leave. Standard library only.

Invariants: a process that is killed has been stopped before, with all others, so that none forks while the rest is looked for;
a segment of shared memory is removed only when no process holds it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_SHARED = "/dev/shm/"  # noqa: S108 - where the C library puts named shared memory
_TICK_S = 0.005
_THAT_CLEAR_UP = (b"resource_tracker", b"torch_shm_manager")
"""They remove the shared memory and the semaphores of their clients when these are dead, and end."""
_CLEARING_UP_S = 1.0


def below(pid: int) -> list[int]:
    """Return every descendant of `pid` that it has not lost to a reaper, parents before their children."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *below(child)]
    return found


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it ended while we looked
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield from map(int, (task / "children").read_text().split())


def resident_mb(pids: Iterable[int]) -> float:
    """Return the resident memory of the processes in MiB; what they share counts in each."""
    pages = 0
    for pid in pids:
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE_KB / 1024


def proportional_mb(pids: Iterable[int]) -> float:
    """Return the memory of the processes together in MiB, counting what they share once; slower than `resident_mb`."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024


def shared_memory(pids: Iterable[int]) -> set[str]:
    """Return the files of named shared memory (and semaphores) that the processes map."""
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError), Path(f"/proc/{pid}/maps").open(errors="replace") as maps:
            for line in maps:
                if _SHARED in line and not line.endswith("(deleted)\n"):
                    found.add(line[line.index(_SHARED) :].rstrip("\n"))
    return found


def kill_below(pid: int) -> set[str]:
    """Kill all descendants of `pid`, which must be this process, and reap them; return the shared memory that they mapped."""
    mapped: set[str] = set()
    spare_until = time.monotonic() + _CLEARING_UP_S
    while True:
        while (alive := _to_kill(pid, spare_until)) - (stopped := _stopped(alive)):
            _signal(alive - stopped, signal.SIGSTOP)
            mapped |= shared_memory(alive)
            time.sleep(_TICK_S)
        _signal(alive, signal.SIGKILL)
        if not reap():
            return mapped
        time.sleep(_TICK_S)


def _to_kill(pid: int, spare_until: float) -> set[int]:
    """Return the descendants, at first without those that clear up behind the others once these are dead."""
    found = set(below(pid))
    return {each for each in found if not _clears_up(each)} if time.monotonic() < spare_until else found


def _clears_up(pid: int) -> bool:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(name in command for name in _THAT_CLEAR_UP)
    return False


def remove_shared_memory(names: set[str]) -> list[str]:
    """Remove the segments that no process of anybody's maps any more; return what was removed."""
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    left = sorted(names - shared_memory(everybody)) if names else []
    removed = []
    for name in left:
        with suppress(OSError):
            Path(name).unlink()
            removed.append(name)
    return removed


def reap() -> bool:
    """Reap the children that have ended; say whether there is still a child."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _stopped(pids: set[int]) -> set[int]:
    """Return those that are stopped, dead or gone."""
    return {pid for pid in pids if _state(pid) in "TtZX"}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
