"""System calls that the standard library does not offer.

Invariant: a call that fails raises an OSError that names it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

MACHINE = platform.machine()

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38

# clone, pivot_root and capset; the newer calls have one number everywhere.
_NUMBERS = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}
MOUNT_SETATTR, LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 442, 444, 445, 446

# PyDLL keeps the interpreter's lock during a call: after a clone, the child must still hold it.
_libc = ctypes.PyDLL(None, use_errno=True)


def supported() -> bool:
    """Say whether the numbers of this machine's system calls are known here."""
    return MACHINE in _NUMBERS


def call(name: str, number: int, *arguments: object) -> int:
    """Make one system call; integers go over as longs."""
    return _checked(name, _libc.syscall(ctypes.c_long(number), *map(_as_long, arguments)))


def prctl(option: int, *arguments: object) -> None:
    """Change something about this process."""
    padded = [*arguments, 0, 0, 0, 0][:4]
    _checked(f"prctl({option})", _libc.prctl(option, *map(_as_long, padded)))


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Get this signal as soon as the parent dies; to be said again after every change of user."""
    prctl(PR_SET_PDEATHSIG, int(by))


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name."""
    _checked("unshare", _libc.unshare(flags))


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _checked(f"mount {target}", _libc.mount(*encoded[:3], ctypes.c_ulong(flags), encoded[3]))


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root directory, and put the present one at `old`."""
    call("pivot_root", _NUMBERS[MACHINE][1], os.fsencode(new), os.fsencode(old))


def unmount(target: str) -> None:
    """Detach what is mounted at `target`, however busy it is."""
    _checked(f"umount {target}", _libc.umount2(os.fsencode(target), MNT_DETACH))


def make_read_only(target: str, *, devices: bool = False) -> None:
    """Make everything that is mounted at and below `target` read-only, without set-user-id programs and device files."""
    flags = MS_RDONLY | MS_NOSUID | (0 if devices else MS_NODEV)
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)  # MOUNT_ATTR_* have the values of MS_* for these three
    at_fdcwd, at_recursive = -100, 0x8000
    try:
        call("mount_setattr", MOUNT_SETATTR, at_fdcwd, os.fsencode(target), at_recursive, attributes, 32)
    except OSError:  # before Linux 5.12: the topmost mount only
        mount("none", target, None, MS_REMOUNT | MS_BIND | flags)


def drop_capabilities() -> None:
    """Give up every capability in this process's user namespace."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", _NUMBERS[MACHINE][2], header, (ctypes.c_uint32 * 6)())


def fork_into(flags: int) -> int:
    """Fork, as os.fork does, into the new namespaces that `flags` name."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = -1
    try:
        pid = call("clone", _NUMBERS[MACHINE][0], flags | int(signal.SIGCHLD), 0, 0, 0, 0)
    finally:
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def _as_long(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
