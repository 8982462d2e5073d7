"""The process between a driver and its server: the server and all that it starts end with any of them. Standard library only.

Two processes keep each other: the outer one starts the inner one, which starts the server and watches it, its memory and the
driver. Whatever is left without a parent becomes a child of one of them.

Invariants: when the driver, the server or either keeper ends, whichever way, the rest of the tree is killed and the shared
memory that it had is removed; the driver learns why from the last line of the inner one's output.

Protocol: the first line of the input is a JSON object (see `Settings` in `engine_process`); its end, or any other line, means:
stop. The output is a line of JSON for the start and one for the end.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

from reward_loop.serving import process_tree

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MEMORY_EVERY_S = 0.5
_SHARED_EVERY_S = 5.0
_LOOK_FOR_HEIR_S = 0.5
_ORPHANED_GRACE_S = 1.0
"""Seconds that a server without a driver gets to end by itself: nobody waits for its answers."""


def main(settings: dict[str, Any]) -> None:
    """Keep the server that `settings` names; returns when nothing of it is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the driver says when, by closing its end
    outer = os.getpid()
    inner = os.fork()
    if inner == 0:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _Keeper(settings, outer, libc).run()
        os._exit(0)
    for standard in (0, 1):
        os.close(standard)  # or the driver would not learn of the inner one's end
    os.waitpid(inner, 0)
    _clean(process_tree.kill_below(outer), settings)


def _clean(mapped: set[str], settings: dict[str, Any]) -> None:
    process_tree.remove_shared_memory(mapped)
    shutil.rmtree(settings["run_dir"], ignore_errors=True)


class _Keeper:
    """The inner process."""

    def __init__(self, settings: dict[str, Any], outer: int, libc: ctypes.CDLL) -> None:
        self._settings = settings
        self._outer = outer
        self._libc = libc
        self._mapped: set[str] = set()
        self._driver = -1

    def run(self) -> None:
        guards = {0: "stop"}
        try:
            for name, pid in (("driver", self._settings["driver"]), ("keeper", self._outer)):
                guards[os.pidfd_open(pid)] = name
        except ProcessLookupError:
            return
        self._driver = next(guard for guard, name in guards.items() if name == "driver")
        updates = self._owned_updates()
        server = self._start()
        guards[os.pidfd_open(server.pid)] = "server"
        _say(event="started", pid=server.pid)
        self._end(server, self._watch(guards))
        if updates is not None and self._is_orphaned():
            self._leave(updates)

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self._settings["log"], "ab") as log:  # noqa: PTH123 - no pathlib in a process that must stay small
            return subprocess.Popen(  # noqa: S603 - the server's command, from the driver
                self._settings["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._settings["environment"],
                start_new_session=True,
                restore_signals=True,
                preexec_fn=self._in_child,
            )

    def _in_child(self) -> None:
        # For when both keepers are killed at once. SIGINT: an ignored signal stays ignored over exec, and vLLM must see it.
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def _watch(self, guards: dict[int, str]) -> str:
        """Return which guard (a descriptor that becomes readable, by name) was first, or `memory` if there is too much."""
        watched = select.poll()
        for guard in guards:
            watched.register(guard, select.POLLIN)
        bound = self._settings["memory_mb"]
        look_at_shared = 0.0
        while True:
            for guard, _ in watched.poll(1000 * (_MEMORY_EVERY_S if bound else _SHARED_EVERY_S)):
                return guards[guard]
            tree = process_tree.below(os.getpid())
            if bound and self._over(bound, tree):
                return "memory"
            if time.monotonic() >= look_at_shared:
                self._mapped |= process_tree.shared_memory(tree)
                look_at_shared = time.monotonic() + _SHARED_EVERY_S

    def _over(self, bound_mb: int, pids: list[int]) -> bool:
        # What processes share counts in each of them at first: the exact sum takes long on large processes.
        return process_tree.resident_mb(pids) > bound_mb and process_tree.proportional_mb(pids) > bound_mb

    def _end(self, server: subprocess.Popen[bytes], reason: str) -> None:
        self._mapped |= process_tree.shared_memory(process_tree.below(os.getpid()))
        if reason in ("stop", "driver", "keeper"):
            grace_s = self._settings["grace_s"] if reason == "stop" else _ORPHANED_GRACE_S
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(grace_s)
        status = server.poll()
        self._mapped |= process_tree.kill_below(os.getpid())
        _clean(self._mapped, self._settings)
        if reason != "driver":
            with suppress(OSError):
                _say(event="ended", reason=reason, status=status)

    def _is_orphaned(self) -> bool:
        """Say whether there is nobody who would start the server again: a driver's input may end well before the driver does."""
        return bool(select.select([self._driver], [], [], 0)[0])

    def _owned_updates(self) -> int | None:
        """Return the directory of the updates, locked as long as this process lives; None if there is none."""
        if self._settings["update_dir"] is None:
            return None
        updates = os.open(self._settings["update_dir"], os.O_RDONLY)
        fcntl.flock(updates, fcntl.LOCK_SH)
        return updates

    def _leave(self, updates: int) -> None:
        """Remove the updates, unless another driver's keeper takes them over within the time that it has for that."""
        fcntl.flock(updates, fcntl.LOCK_UN)
        until = time.monotonic() + self._settings["heir_wait_s"]
        while True:
            try:
                fcntl.flock(updates, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if time.monotonic() >= until:
                shutil.rmtree(self._settings["update_dir"], ignore_errors=True)
                return
            fcntl.flock(updates, fcntl.LOCK_UN)
            time.sleep(_LOOK_FOR_HEIR_S)


def _say(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")
