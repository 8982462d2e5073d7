"""Finding out by trying which mechanisms this machine offers to a sandbox.

Invariant: each is tried in a process of its own, so that a trial changes nothing.
"""

# ruff: noqa: PTH123  # single system calls: below what pathlib covers
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from reward_loop.sandbox.inside import bubblewrap, cgroup, kernel, landlock, seccomp, users, view
from reward_loop.sandbox.inside.confine import Confinement

_SOME_USER = 65534


def main(settings: dict[str, Any]) -> None:
    """Print, as JSON, what is wrong with each mechanism; nothing for those that work."""
    trials: dict[str, Callable[[], object]] = {
        "machine": _machine,
        "user": lambda: users.become(_SOME_USER),
        "seccomp": _seccomp,
        "landlock": _landlock,
        "namespaces": lambda: _namespaces(settings["base"], settings["readable"]),
        "cgroup": _cgroup,
        "bwrap": lambda: _bubblewrap(settings["bwrap"], settings["readable"]),
    }
    print(json.dumps({name: _tried(trial) for name, trial in trials.items()}))  # noqa: T201  # the way out of this process


def _tried(trial: Callable[[], object]) -> str:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            trial()
        except BaseException as error:  # noqa: BLE001  # whatever is wrong, the other trials go on
            os.write(writing, (str(error) or type(error).__name__).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    return told if status == 0 else f"the trial ended with status {status}"


def _machine() -> None:
    if not kernel.supported():
        raise OSError(f"system call numbers of {kernel.MACHINE} are not known here, those of x86_64 and aarch64 are")


def _seccomp() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install()


def _landlock() -> None:
    if not landlock.version():
        raise OSError("the kernel does not offer it")


def _namespaces(stage: str, readable: list[str]) -> None:
    if os.geteuid() != 0:
        view.enter_user_namespace()
    view.build(stage, readable)
    pid = kernel.fork_into(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    if pid == 0:
        view.make_private(1, 0)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise OSError("a private /tmp and /proc can't be mounted")


def _cgroup() -> None:
    missing = {"memory", "pids"} - cgroup.parents().keys()
    if missing and "unified" not in cgroup.parents():
        raise OSError(f"no writable control group for {' and '.join(sorted(missing))}")


def _bubblewrap(bwrap: str | None, readable: list[str]) -> None:
    if bwrap is None:
        raise OSError("it is not installed")
    if os.geteuid() == 0:
        users.become(_SOME_USER)
    how = Confinement("/tmp", None, True, (), 64, 1, 1, 8)  # noqa: S108
    done = subprocess.run(  # noqa: S603
        [bwrap, *bubblewrap.options(readable, how), "/bin/sh", "-c", "exit 0"], capture_output=True, check=False, timeout=10
    )
    if done.returncode != 0:
        raise OSError(done.stderr.decode("utf-8", "replace").strip())
