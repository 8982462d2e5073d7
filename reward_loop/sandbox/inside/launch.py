"""Forking the processes of one program, at any level.

    level 0, 1   nursery ─► program
    level 2      nursery ─► first process of a new pid namespace ─► program: when the first ends, so does all else in there
    level 3      nursery ─► bwrap ─► an interpreter of its own ─► program

Invariants: a forked process never returns into the nursery's code; what fails before the program's first line is told on the
status pipe, so that it is never taken for the program's doing.
"""

# ruff: noqa: PTH123  # single system calls: below what pathlib covers
from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import NamedTuple

from reward_loop.sandbox.inside import kernel, program, served, tester, view
from reward_loop.sandbox.inside.cgroup import Group
from reward_loop.sandbox.inside.confine import Confinement, confine, reset_signals, settle

_FAILED = 70
_TOLD, _STATUS = b"E", b"S"
NOT_BEGUN, BEGUN = b"W", b"B"
"""Told by programs that have an interpreter of their own to start first."""


class Started(NamedTuple):
    """A program's topmost process, and where its status is read once that has ended."""

    pid: int
    status: int


class Task(NamedTuple):
    """What a program's process does: `kind` is "program", "served" or "tester"; the descriptors begin with the payload."""

    kind: str
    payload: int
    descriptors: tuple[int, ...]


def fork(task: Task, how: Confinement, group: Group | None) -> Started:
    """Start a task as a child of this process (levels 0 and 1)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        never_return(writing, lambda: _perform(task, how, group, writing))
    os.close(writing)
    return Started(pid, reading)


def fork_namespace(task: Task, how: Confinement, group: Group | None, owner: int | None) -> Started:
    """Start a task in pid, mount and ipc namespaces of its own (level 2); `owner`: our id, where a user namespace makes that
    possible."""
    flags = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC
    reading, writing = os.pipe()
    pid = kernel.fork_into(flags if owner is None else flags | kernel.CLONE_NEWUSER)
    if pid == 0:
        never_return(writing, lambda: _first_process(task, how, group, owner, writing))
    os.close(writing)
    return Started(pid, reading)


def outcome(started: Started, wait_status: int) -> tuple[int | None, str | None]:
    """Return the program's wait status (None: it never ended by itself) and our own failure, if there was one."""
    with open(started.status, "rb") as pipe:
        told = pipe.read(4096)
    if told == NOT_BEGUN:
        return (
            None,
            "its interpreter could not be started (bubblewrap failed); see what `bwrap` says about itself on this machine",
        )
    told = told.lstrip(NOT_BEGUN + BEGUN)
    if told[:1] == _TOLD:
        return None, told[1:].decode("utf-8", "replace")
    if told[:1] == _STATUS:
        return int(told[1:]), None
    return wait_status, None


def tell(writing: int, wait_status: int) -> None:
    """Say on the status pipe how the program ended, where its parent is not the nursery."""
    os.write(writing, _STATUS + str(wait_status).encode())


def never_return(writing: int, work: Callable[[], int]) -> None:
    """End this process with the code that `work` returns; its exceptions go on the status pipe."""
    code = _FAILED
    try:
        code = work()
    except BaseException:  # noqa: BLE001  # told to the nursery, which is in another process now
        os.write(writing, _TOLD + traceback.format_exc(limit=-3)[-2000:].encode())
    finally:
        os._exit(code)


def _first_process(task: Task, how: Confinement, group: Group | None, owner: int | None, writing: int) -> int:
    reset_signals()
    kernel.die_with_parent()
    inside = 0
    if owner is not None:
        view.map_user(0, 0, 0)
    elif how.uid is not None:
        inside = how.uid
    if group is not None:
        group.join()
    view.make_private(how.file_mb, inside)
    pid = os.fork()
    if pid == 0:
        never_return(writing, lambda: _perform(task, how, None, writing))
    os.closerange(0, writing)
    while True:
        ended, status = os.wait()
        if ended == pid:
            tell(writing, status)
            return 0


def _perform(task: Task, how: Confinement, group: Group | None, writing: int) -> int:
    reset_signals()
    os.setsid()
    with open(task.payload, "rb") as file:
        payload = file.read()
    status = settle(task.descriptors, writing)
    if group is not None:
        group.join()
    confine(how)
    os.close(status)
    return act(task.kind, payload)


def act(kind: str, payload: bytes) -> int:
    """Do what the process was made for; returns its exit code."""
    if kind == "program":
        return program.run(payload)
    if kind == "served":
        served.serve(payload, 3)
    else:
        tester.judge(payload, 3, 4)
    return 0
