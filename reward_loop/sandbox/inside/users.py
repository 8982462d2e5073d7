"""Users that belong to nobody: one per program, so that its processes can be counted, and killed at one stroke.

Invariants: a user id is used by one sandbox of the machine at a time; a claim ends with the process that made it, and leaves
nothing on the disk; a sweep reaches the processes of its user and no others.
"""

# ruff: noqa: PTH123  # single system calls: below what pathlib covers
from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress

from reward_loop.sandbox.inside import kernel

# Ids that systemd's allocation leaves unused: below 65536 for containers that map no more, and many above.
_RANGES = (range(60706, 61184), range(1_900_000_000, 1_900_004_096))


class Claims:
    """The user ids of one sandbox; `reaper` is the one under which it sweeps."""

    def __init__(self, count: int) -> None:
        self._held: list[socket.socket] = []
        ids = self._claim()
        self.reaper = next(ids)
        self.free = [next(ids) for _ in range(count)]
        for uid in self.free:
            sweep(uid, self.reaper)  # what a sandbox that was killed outright may have left

    def _claim(self) -> Iterator[int]:
        for uid in (uid for ids in _RANGES for uid in ids if _is_mapped(uid)):
            # An abstract socket's name is a lock that the kernel gives back, whatever becomes of us.
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                lock.bind(f"\0reward-loop-sandbox-user-{uid}")
            except OSError:
                lock.close()
            else:
                self._held.append(lock)
                yield uid
        raise OSError("every user id that sandboxes may use is taken; run fewer sandboxes on this machine")


def sweep(uid: int, reaper: int) -> None:
    """Kill every process of a user.

    kill(-1) takes all of them in one step, where killing one after the other would race against their forks.
    """
    # The real id is one that no process has, or kill(-1) would reach root's too; the saved id 0 is the way back, and bars
    # the swept user from signalling us. Changing ids clears the parent-death signal.
    os.setresuid(reaper, uid, 0)
    try:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    finally:
        os.setresuid(0, 0, 0)
        kernel.die_with_parent(signal.SIGTERM)


def user_of(pid: int) -> int | None:
    """Return the user of a process; None where it is gone. (The owner of its /proc directory may be another.)"""
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
    return None


def become(uid: int) -> None:
    """Turn this process into one of the user's, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _is_mapped(uid: int) -> bool:
    return any(first <= uid < first + count for first, count in _mapped())


def _mapped() -> list[tuple[int, int]]:
    with suppress(OSError), open("/proc/self/uid_map", encoding="ascii") as lines:
        return [(int(first), int(count)) for first, _, count in map(str.split, lines)]
    return [(0, 65536)]
