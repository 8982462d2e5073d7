"""The file system as programs of level 2 see it: the interpreter, read-only, and nothing of the machine's owner.

Invariants: what is not listed is not there; all is read-only but a program's own /tmp, whose size is bounded; /proc shows the
program's own processes.
"""

# ruff: noqa: PTH102, PTH103, PTH106, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211  # single system calls: below what pathlib covers
from __future__ import annotations

import os
from collections.abc import Iterable

from reward_loop.sandbox.inside import kernel
from reward_loop.sandbox.inside.directories import MOST_ENTRIES

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
SETTINGS = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/mime.types",
    "/etc/alternatives",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LINKS = {"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2", "/dev/shm": "/tmp"}  # noqa: S108


def enter_user_namespace() -> None:
    """Become root of a user namespace, which without privileges is what the other namespaces take."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    map_user(0, uid, gid)


def map_user(inside: int, uid: int, gid: int) -> None:
    """Call the user `uid` of the outer namespace `inside` in this new one."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def build(stage: str, interpreter: Iterable[str]) -> None:
    """Move this process into a file system of system folders and the `interpreter`'s, in namespaces of its own.

    `stage` is an empty directory, needed while it is built.
    """
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", stage, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    for path in (*SYSTEM, *SETTINGS, *sorted(interpreter)):
        _show(path, stage)
    for path in DEVICES:
        _show(path, stage, devices=True)
    for link, target in _LINKS.items():
        os.symlink(target, stage + link)
    for name in ("/proc", "/tmp", "/outside"):  # noqa: S108
        os.makedirs(stage + name, exist_ok=True)
    # Without privileges, a new /proc may be mounted only where a whole one is in sight.
    kernel.mount("/proc", f"{stage}/proc", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.pivot_root(stage, f"{stage}/outside")
    os.chdir("/")
    kernel.unmount("/outside")
    os.rmdir("/outside")
    kernel.mount("none", "/", None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID)


def _show(path: str, stage: str, *, devices: bool = False) -> None:
    target = stage + path
    if not os.path.lexists(path) or os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path) and path in SYSTEM:
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(os.path.realpath(path), target, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.make_read_only(target, devices=devices)


def make_private(file_mb: int, uid: int) -> None:
    """Give this process, which is alone in new namespaces, a /tmp and a /proc of its own; `uid` owns /tmp."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    size = f"size={file_mb}m,nr_inodes={MOST_ENTRIES},mode=700,uid={uid},gid={uid}"
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, size)  # noqa: S108
    try:
        kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC)
    except PermissionError:  # a container that hides parts of /proc forbids a new one: then there is none
        kernel.mount("tmpfs", "/proc", "tmpfs", flags | kernel.MS_RDONLY, "size=4k,mode=755")
