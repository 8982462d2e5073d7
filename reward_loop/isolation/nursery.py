"""The process that grader processes are forked from: it has loaded the function, so that one more costs a fork.

    driver ── Popen ──► nursery ── fork ──► grader, grader, …

`main` runs with the control channel's descriptor as first argument and a pickled `Setup` on standard input. It obeys `fork` (with
the descriptor of the grader's channel) and `kill PID`, and reports `ready`, `failed WHY`, `forked PID` and `died PID STATUS`.

Invariants: it runs one thread, or children would be forked from a process whose locks are held; all that descends from it ends
with it, whatever became of its parents, and it ends with its driver, also after kill -9 of that.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from reward_loop.errors import ConfigError
from reward_loop.functions.user_code import UserCode
from reward_loop.isolation.grading import bound_memory, load, serve

COMMAND = 4096
"""Most bytes of a command or report; `failed` is cut to fit."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ORPHAN_CHECK_MS = 500


@dataclass(frozen=True, slots=True)
class Setup:
    """What a nursery needs to know."""

    code: UserCode
    pickled: bytes
    memory_mb: int


class Nursery:
    """The loop of the process; `function` is None where it must be loaded by each grader."""

    def __init__(self, control: socket.socket, setup: Setup, function: Callable[..., Any] | None) -> None:
        self._control = control
        self._setup = setup
        self._function = function
        self._graders: set[int] = set()
        self._driver = os.getppid()

    def run(self) -> None:
        """Obey the driver until it is gone."""
        woken, wakes = socket.socketpair()
        for end in (woken, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        events = select.poll()
        events.register(self._control, select.POLLIN)
        events.register(woken, select.POLLIN)
        self._report("ready")
        obeying = True
        while obeying and os.getppid() == self._driver:
            ready = {descriptor for descriptor, _ in events.poll(_ORPHAN_CHECK_MS)}
            if woken.fileno() in ready:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(COMMAND)
                self._reap()
            if self._control.fileno() in ready:
                obeying = self._obey()
        signal.set_wakeup_fd(-1)

    def end_all(self) -> None:
        """Kill everything that descends from this process."""
        while children := _children():
            for pid in children:
                _kill(pid)
            for pid in children:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _obey(self) -> bool:
        try:
            command, descriptors, _, _ = socket.recv_fds(self._control, COMMAND, 1)
        except ConnectionError:
            return False
        if command == b"fork" and descriptors:
            self._fork(socket.socket(fileno=descriptors[0]))
        elif command.startswith(b"kill ") and (pid := int(command[5:])) in self._graders:
            _kill(pid)
        return bool(command)

    def _fork(self, channel: socket.socket) -> None:
        nursery = os.getpid()
        if not (pid := os.fork()):
            self._control.close()
            _grader(channel, nursery, self._setup, self._function)
        channel.close()
        self._graders.add(pid)
        self._report(f"forked {pid}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._graders:
                self._graders.discard(pid)
                self._report(f"died {pid} {os.waitstatus_to_exitcode(status)}")
                # What it had started, also in sessions of their own, is now a child of this process.
                for orphan in _children() - self._graders:
                    _kill(orphan)

    def _report(self, text: str) -> None:
        try:
            self._control.send(text.encode(errors="replace")[:COMMAND])
        except ConnectionError:
            return  # the driver is gone, which the loop will see


def _grader(channel: socket.socket, nursery: int, setup: Setup, function: Callable[..., Any] | None) -> NoReturn:
    """Be a grader process."""
    status = 1
    try:
        os.setpgid(0, 0)  # so that a kill reaches what it starts; a session would get a share of the processor of its own
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != nursery:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        random.seed()  # forked from one process, they would all draw the same numbers
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()
        bound_memory(setup.memory_mb)
        serve(channel, function or load(setup.code, setup.pickled))
        status = 0
    except ConnectionError:
        status = 0  # the driver has closed the channel
    except BaseException:  # noqa: BLE001 - os._exit below would drop it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not lead a group, or not yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _children() -> set[int]:
    own = os.getpid()
    try:
        return set(map(int, Path(f"/proc/self/task/{own}/children").read_text().split()))
    except FileNotFoundError:  # a kernel without it: groups are killed all the same
        return set()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir())) if sys.platform == "linux" else 1


def main() -> None:
    """Be a nursery."""
    control = socket.socket(fileno=int(sys.argv[1]))
    cold = "cold" in sys.argv
    setup: Setup = cloudpickle.load(sys.stdin.buffer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    function = None
    if not cold:
        try:
            function = load(setup.code, setup.pickled)
        except ConfigError as error:
            control.send(f"failed {error}".encode(errors="replace")[:COMMAND])
            # Until the driver hangs up: what it has sent and nobody read would make it lose the report.
            while control.recv(COMMAND):
                pass
            return
        if _threads() > 1:
            os.lseek(0, 0, os.SEEK_SET)
            os.set_inheritable(control.fileno(), True)
            os.execv(sys.executable, [*sys.orig_argv, "cold"])  # noqa: S606 - this program again
    sys.stdout.flush()  # or every grader would print what is still buffered
    gc.freeze()  # so that collections in graders don't copy the pages they share
    nursery = Nursery(control, setup, function)
    try:
        nursery.run()
    finally:
        nursery.end_all()
