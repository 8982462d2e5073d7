"""Level 3: each program in a container that bubblewrap makes, with an interpreter of its own.

Invariants: what confines a program at level 1 holds inside too; a bubblewrap that fails is a failure of ours, because the
interpreter inside says on the status pipe that it has begun.
"""

# ruff: noqa: PTH110, PTH114, PTH115, PTH123  # single system calls: below what pathlib covers
from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from reward_loop.sandbox.inside import launch, program, view
from reward_loop.sandbox.inside.confine import Confinement, confine, limit, reset_signals, settle
from reward_loop.sandbox.inside.launch import Started, Task
from reward_loop.sandbox.inside.users import become

_ITS_PROCESSES = 3  # its own two, and the interpreter that waits for the program


def options(interpreter: Iterable[str], how: Confinement) -> list[str]:
    """Return what bubblewrap is told about namespaces and files."""
    given = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path in (*view.SYSTEM, *view.SETTINGS, *sorted(interpreter)):
        if os.path.islink(path) and path in view.SYSTEM:
            given += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            given += ["--ro-bind", os.path.realpath(path), path]
    given += ["--proc", "/proc", "--dev", "/dev", "--size", str(how.file_mb << 20), "--tmpfs", "/tmp"]  # noqa: S108
    return [*given, "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108


def fork(task: Task, how: Confinement, command: list[str], bundle: int) -> Started:
    """Start a task with a command that runs bubblewrap and an interpreter in it; `bundle` holds our modules for that."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, launch.NOT_BEGUN)
        launch.never_return(writing, lambda: _execute(task, how, command, bundle, writing))
    os.close(writing)
    return Started(pid, reading)


def _execute(task: Task, how: Confinement, command: list[str], bundle: int, writing: int) -> int:
    reset_signals()
    os.setsid()
    count = len(task.descriptors)
    status = settle((*task.descriptors, bundle, task.payload), writing)
    limit(how._replace(processes=how.processes + _ITS_PROCESSES))
    if how.uid is not None:
        become(how.uid)
    os.chdir(how.directory)
    for descriptor in range(count, status + 1):
        os.set_inheritable(descriptor, True)
    inner = how._replace(directory="/tmp", uid=None, readable=("/",))  # noqa: S108
    settings = {"main": __name__, "kind": task.kind, "given": count, "how": inner._asdict()}
    os.execve(command[0], [*command, str(count), json.dumps(settings)], {"PATH": "/usr/bin:/bin"})  # noqa: S606


def main(settings: dict[str, Any]) -> None:
    """Be the interpreter inside: say so, let a child do the task, confined further, and tell how that ended."""
    count = settings["given"]
    payload, status = count + 1, count + 2
    with open(payload, "rb") as file:
        content = file.read()
    program.prepare()
    os.write(status, launch.BEGUN)
    pid = os.fork()
    if pid:
        os.closerange(0, status)
        _, ended = os.waitpid(pid, 0)
        launch.tell(status, ended)
        os._exit(0)
    launch.never_return(status, lambda: _confined(settings, content, status))


def _confined(settings: dict[str, Any], content: bytes, status: int) -> int:
    status = settle(range(settings["given"]), status)
    confine(Confinement(**dict(settings["how"], readable=tuple(settings["how"]["readable"]))), limited=True)
    os.close(status)
    return launch.act(settings["kind"], content)
