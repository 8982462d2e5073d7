"""What a process gives up before it runs a program.

Invariants: afterwards it can't regain any of it; it holds the descriptors it was given and no others.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import Iterable
from typing import Any, NamedTuple

from reward_loop.sandbox.inside import kernel, landlock, seccomp, users

_OUT_OF_THE_WAY = 32
_MOST_FILES = 64
_MiB = 1 << 20


class Confinement(NamedTuple):
    """How one program is confined. `uid`: the user it becomes (None: it stays); `filtered`: system call filter and Landlock."""

    directory: str
    uid: int | None
    filtered: bool
    readable: tuple[str, ...]
    memory_mb: int
    cpu_s: int
    file_mb: int
    processes: int


def settle(descriptors: Iterable[int], kept: int) -> int:
    """Move `descriptors` to 0, 1, 2 and so on, close all others but `kept`, and return where that is now."""
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for descriptor in (*descriptors, kept)]
    for number, descriptor in enumerate(moved[:-1]):
        os.dup2(descriptor, number)
    last = len(moved) - 1
    os.dup2(moved[-1], last, inheritable=False)
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
    return last


def confine(how: Confinement, *, limited: bool = False) -> None:
    """Confine this process, and with it whatever it will start; `limited`: its resource limits are set already."""
    os.umask(0o077)
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin", "HOME": how.directory, "TMPDIR": how.directory, "LANG": "C.UTF-8"})
    if not limited:
        limit(how)
    if how.uid is not None:
        users.become(how.uid)
    os.chdir(how.directory)
    kernel.die_with_parent()
    if how.filtered:
        if how.uid is None:  # in a user namespace, where our user is a root of its own
            kernel.drop_capabilities()
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict(how.directory, how.readable)
        seccomp.install()


def limit(how: Confinement) -> None:
    """Set the resource limits, hard ones."""
    limits = {
        resource.RLIMIT_AS: (how.memory_mb * _MiB,) * 2,
        # The soft limit's signal says why the program ended; the hard one is for those who ignore it.
        resource.RLIMIT_CPU: (how.cpu_s, how.cpu_s + 1),
        resource.RLIMIT_FSIZE: (how.file_mb * _MiB,) * 2,
        resource.RLIMIT_NOFILE: (_MOST_FILES, _MOST_FILES),
        resource.RLIMIT_NPROC: (how.processes, how.processes),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
    }
    for kind, (soft, hard) in limits.items():
        _, most = resource.getrlimit(kind)
        bounds = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard)]
        resource.setrlimit(kind, (bounds[0], bounds[1]))


def reset_signals() -> None:
    """Forget the handlers of the process that this one was forked from."""
    signal.set_wakeup_fd(-1)
    standard: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGPIPE: signal.SIG_IGN}
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, standard.get(number, signal.SIG_DFL))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
