"""Control groups: memory and processes of a whole program, where their files are writable (both generations).

Invariants: groups are made below the one that we are in, so that its limits go on to hold; a group's files stay reachable after
the file system's view has changed; what was made is removed again.
"""

# ruff: noqa: PTH123, PTH208  # single system calls: below what pathlib covers
from __future__ import annotations

import os
from contextlib import suppress

_ROOT = "/sys/fs/cgroup"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def names_of(nursery: int) -> str:
    """Return what the names of a nursery's groups begin with."""
    return f"reward-loop-{nursery}-"


class Group:
    """One control group per controller for one program after the other; joined by the program's first process."""

    def __init__(self, parents: dict[str, int], name: str) -> None:
        self._parents, self._name = parents, name
        self._folders: dict[str, int] = {}
        for controller, parent in parents.items():
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
            self._folders[controller] = os.open(name, _DIRECTORY, dir_fd=parent)

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Set the limits for the next program."""
        if "memory" in self._folders:
            self._write("memory", "memory.limit_in_bytes", memory_bytes)
        if "pids" in self._folders:
            self._write("pids", "pids.max", processes)
        if "unified" in self._folders:
            self._write("unified", "memory.max", memory_bytes)
            self._write("unified", "memory.swap.max", 0)
            self._write("unified", "pids.max", processes)

    def join(self) -> None:
        """Put the calling process, and all that it will start, into the group."""
        for controller in self._folders:
            self._write(controller, "cgroup.procs", 0)

    def ooms(self) -> int:
        """Return how many processes the kernel has killed here for want of memory."""
        name, controller = ("memory.events", "unified") if "unified" in self._folders else ("memory.oom_control", "memory")
        if controller not in self._folders:
            return 0
        with suppress(OSError), open(self._open(controller, name, os.O_RDONLY), encoding="ascii") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0

    def remove(self) -> None:
        """Remove the group; its processes must be gone."""
        for controller, folder in self._folders.items():
            os.close(folder)
            with suppress(OSError):  # still busy: an empty group costs nothing
                os.rmdir(self._name, dir_fd=self._parents[controller])

    def _write(self, controller: str, name: str, value: int) -> None:
        file = self._open(controller, name, os.O_WRONLY)
        try:
            os.write(file, str(value).encode())
        except OSError as error:
            if name != "memory.swap.max":  # absent where the kernel does not account for swap
                raise OSError(error.errno, f"control group {controller}/{name}={value}: {error.strerror}") from error
        finally:
            os.close(file)

    def _open(self, controller: str, name: str, flags: int) -> int:
        if name == "memory.swap.max" and not os.access(name, os.W_OK, dir_fd=self._folders[controller]):
            return os.open(os.devnull, os.O_WRONLY)
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folders[controller])


def remove_all(nursery: int) -> None:
    """Remove the groups of a nursery that could not do so itself."""
    for parent in parents().values():
        for name in os.listdir(parent):
            if name.startswith(names_of(nursery)):
                with suppress(OSError):  # as above
                    os.rmdir(name, dir_fd=parent)
        os.close(parent)


def parents() -> dict[str, int]:
    """Return the writable groups that we are in, as open directories: "memory" and "pids", or "unified"."""
    found: dict[str, int] = {}
    for controllers, path in _memberships():
        for controller in ("memory", "pids"):
            if controller in controllers.split(",") and os.access(f"{_ROOT}/{controller}{path}", os.W_OK):
                found[controller] = os.open(f"{_ROOT}/{controller}{path}", _DIRECTORY)
        if not controllers and _delegated(f"{_ROOT}{path}"):
            found["unified"] = os.open(f"{_ROOT}{path}", _DIRECTORY)
    return found


def _delegated(path: str) -> bool:
    """Say whether groups below this one, of the second generation, can limit memory and processes."""
    try:
        with open(f"{path}/cgroup.subtree_control", encoding="ascii") as file:
            present = file.read().split()
        if not {"memory", "pids"} <= set(present):
            with open(f"{path}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write("+memory +pids")
    except OSError:
        return False
    return os.access(path, os.W_OK)


def _memberships() -> list[tuple[str, str]]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as lines:
            return [(controllers, path) for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in lines)]
    except OSError:
        return []
