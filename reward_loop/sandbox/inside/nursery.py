"""The nursery: a small process that forks one child per program, bounds it in time, and cleans up behind it.

It is told what to do, with the descriptors to do it on, in packets on one socket, and answers there. Invariants: it runs no
code of a program's in its own process; a run is over only when nothing of it is left, processes, directory and control group;
when its socket closes or its parent dies, it ends all programs and itself.
"""

# ruff: noqa: PTH119, PTH120, PTH123  # single system calls: below what pathlib covers
from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any

from reward_loop.sandbox.inside import bubblewrap, cgroup, directories, kernel, launch, program, users, view
from reward_loop.sandbox.inside.confine import Confinement
from reward_loop.sandbox.inside.launch import Started, Task

_TICK_S, _WATCH_S = 0.002, 0.1
_MiB = 1 << 20
# What programs import most: loaded once here, not once per program.
_WARM = [
    "abc",
    "bisect",
    "collections",
    "copy",
    "datetime",
    "decimal",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "io",
    "itertools",
    "json",
    "linecache",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "threading",
    "time",
    "traceback",
    "typing",
]


class Run:
    """One program from its start until nothing of it is left."""

    def __init__(self, asked: dict[str, Any], started: Started, slot: Slot, directory: str) -> None:
        self.id: int = asked["id"]
        self.started, self.slot, self.directory = started, slot, directory
        self.file_bytes = asked["file_mb"] * _MiB
        self.began = time.monotonic()
        self.due = None if asked["wall_s"] is None else self.began + asked["wall_s"]
        self.watched = self.began + _WATCH_S
        self.ooms = 0 if slot.group is None else slot.group.ooms()
        self.why: str | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.error: str | None = None


class Slot:
    """A user and a control group, which one run at a time has for itself."""

    def __init__(self, uid: int | None, group: cgroup.Group | None) -> None:
        self.uid, self.group = uid, group


class Nursery:
    """The programs of one sandbox."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._level: int = settings["level"]
        self._base: str = settings["base"]
        self._readable: tuple[str, ...] = tuple(settings["readable"])
        self._is_root = os.geteuid() == 0
        self._interpreter: list[str] = settings["interpreter"]
        self._bundle: int = settings["bundle"]
        self._bwrap: str | None = settings["bwrap"]
        self._namespaced_user = None if self._is_root else os.geteuid()
        self._runs: dict[int, Run] = {}  # by the pid of the topmost process
        self._ending: list[Run] = []
        self._waiting: deque[tuple[dict[str, Any], list[int]]] = deque()
        self._claims: users.Claims | None = None
        self._free = self._slots(2 * settings["places"] + 2)
        if self._level == 2:
            self._enter_view()
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def _slots(self, count: int) -> list[Slot]:
        if self._level and self._is_root:
            self._claims = users.Claims(count)
        ids: list[int | None] = [None] * count if self._claims is None else [*self._claims.free]
        parents = cgroup.parents() if self._level == 2 else {}
        name = cgroup.names_of(os.getpid())
        self.limited = sorted(parents)
        return [Slot(uid, cgroup.Group(parents, f"{name}{n}") if parents else None) for n, uid in enumerate(ids)]

    def _enter_view(self) -> None:
        above = os.open(os.path.dirname(self._base), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._namespaced_user is not None:
            view.enter_user_namespace()
        view.build(self._base, self._readable)
        os.rmdir(os.path.basename(self._base), dir_fd=above)  # it was the scaffold
        os.close(above)

    def serve(self, wakeup: int) -> None:
        """Do as the parent says until it hangs up."""
        while True:
            ready, _, _ = select.select([self._control.fileno(), wakeup], [], [], self._pause())
            if wakeup in ready:
                with suppress(BlockingIOError):
                    os.read(wakeup, 4096)
            self._reap()
            self._look_after()
            if self._control.fileno() in ready and not self._hear():
                return

    def _pause(self) -> float | None:
        if self._ending:
            return _TICK_S
        living = [run for run in self._runs.values() if run.why is None]
        dates = [run.due for run in living if run.due is not None]
        dates += [run.watched for run in living if self._level < 2]
        return max(0.0, min(dates) - time.monotonic()) if dates else None

    def _hear(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 65536, 8)
        if not message:
            return False
        asked = json.loads(message)
        if asked["op"] == "kill":
            for run in self._runs.values():
                if run.id == asked["id"]:
                    self._kill(run, "killed")
            for waiting in [waiting for waiting in self._waiting if waiting[0]["id"] == asked["id"]]:
                self._waiting.remove(waiting)
                self._refuse(*waiting, "it was cancelled before it began")
        else:
            self._waiting.append((asked, descriptors))
            self._start_waiting()
        return True

    def _start_waiting(self) -> None:
        while self._waiting and self._free:
            asked, descriptors = self._waiting.popleft()
            slot = self._free.pop()
            try:
                run = self._start(asked, descriptors, slot)
            except OSError as error:
                self._free.append(slot)
                self._refuse(asked, descriptors, str(error))
            else:
                self._runs[run.started.pid] = run
                _close(descriptors)

    def _refuse(self, asked: dict[str, Any], descriptors: list[int], error: str) -> None:
        _close(descriptors)
        self._say(op="ended", id=asked["id"], status=None, why=None, oom=False, seconds=0.0, error=error)

    def _start(self, asked: dict[str, Any], descriptors: list[int], slot: Slot) -> Run:
        directory = "/tmp" if self._level == 2 else f"{self._base}/{asked['id']}"  # noqa: S108
        payload, *given = descriptors
        if asked["kind"] != "program":
            given = [self._null, self._null, self._null, *given]
        task = Task(asked["kind"], payload, tuple(given))
        numbers = {name: asked[name] for name in ("memory_mb", "cpu_s", "file_mb", "processes")}
        how = Confinement(directory=directory, uid=slot.uid, filtered=self._level > 0, readable=self._readable_now(), **numbers)
        group = slot.group if asked["kind"] != "tester" else None  # the tester is ours: a program must not starve it
        if group is not None:
            group.limit(asked["memory_mb"] * _MiB, asked["processes"] + 1)
        if self._level == 2:
            started = launch.fork_namespace(task, how, group, self._namespaced_user)
            return Run(asked, started, slot, directory)
        directories.create(directory, slot.uid)
        if self._level == 3:
            command = [str(self._bwrap), *bubblewrap.options(self._readable, how), *self._interpreter]
            started = bubblewrap.fork(task, how, command, self._bundle)
        else:
            started = launch.fork(task, how, group)
        return Run(asked, started, slot, directory)

    def _readable_now(self) -> tuple[str, ...]:
        return ("/",) if self._level == 2 else (*view.SYSTEM, "/etc", *view.DEVICES, *self._readable)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self._runs.pop(pid, None)
            if run is not None:
                run.ended = time.monotonic()
                run.status, run.error = launch.outcome(run.started, status)
                if run.why is not None:
                    run.error = None
                self._ending.append(run)

    def _look_after(self) -> None:
        now = time.monotonic()
        for run in [run for run in self._runs.values() if run.why is None]:
            if run.due is not None and now >= run.due:
                self._kill(run, "timeout")
            elif self._level < 2 and now >= run.watched:
                run.watched = now + _WATCH_S
                if directories.exceeds(run.directory, run.file_bytes):
                    self._kill(run, "disk")
        for run in list(self._ending):
            if self._is_gone(run):
                self._ending.remove(run)
                self._finish(run)

    def _kill(self, run: Run, why: str) -> None:
        run.why = run.why or why
        with suppress(ProcessLookupError):
            os.kill(run.started.pid, signal.SIGKILL)

    def _is_gone(self, run: Run) -> bool:
        """Kill what a run has left behind; say whether there was nothing."""
        if self._level == 2:  # its namespace ended with its topmost process
            return True
        orphans = children() - self._runs.keys()  # what a program leaves behind becomes our child, now that it is gone
        if run.slot.uid is not None and self._claims is not None:
            users.sweep(run.slot.uid, self._claims.reaper)
            return not any(users.user_of(pid) == run.slot.uid for pid in orphans)
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not orphans

    def _finish(self, run: Run) -> None:
        oom = run.slot.group is not None and run.slot.group.ooms() > run.ooms
        if self._level != 2:
            with suppress(FileNotFoundError):
                directories.remove(run.directory)
        self._free.append(run.slot)
        seconds = (run.ended or 0.0) - run.began
        self._say(op="ended", id=run.id, status=run.status, why=run.why, oom=oom, seconds=seconds, error=run.error)
        self._start_waiting()

    def _say(self, **said: object) -> None:
        with suppress(OSError):  # the parent is gone: the loop will see it
            self._control.send(json.dumps(said).encode())

    def close(self) -> None:
        """Kill every program, wait until nothing is left of them, and remove what was made."""
        self._waiting.clear()
        for run in self._runs.values():
            self._kill(run, "killed")
        deadline = time.monotonic() + 10.0
        while (self._runs or self._ending) and time.monotonic() < deadline:
            self._reap()
            self._look_after()
            time.sleep(_TICK_S)
        for slot in self._free:
            if slot.group is not None:
                slot.group.remove()
        if self._level != 2:
            with suppress(OSError):
                directories.remove(self._base)


def children() -> set[int]:
    """Return the processes whose parent this one is, by birth or because theirs has ended."""
    me = os.getpid()
    with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()}


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _warm_up() -> None:
    program.prepare()
    for name in _WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a child's collector leaves our pages alone


def main(settings: dict[str, Any]) -> None:
    """Serve on the socket that the settings name, until its other end closes."""
    control = socket.socket(fileno=settings["control"])
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != settings["keeper"]:
        return
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: control.shutdown(socket.SHUT_RD))  # as if the parent had hung up
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        nursery = Nursery(control, settings)
        _warm_up()
    except OSError as error:
        control.send(json.dumps({"op": "fatal", "error": str(error)}).encode())
        return
    control.send(json.dumps({"op": "ready", "pid": os.getpid(), "limited": nursery.limited}).encode())
    with contextlib.closing(nursery):
        nursery.serve(reading)
