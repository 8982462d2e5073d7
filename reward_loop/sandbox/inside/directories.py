"""The private directories of programs: made, measured and removed, whatever a program made of them.

Invariants: symbolic links are never followed; depth costs neither stack nor descriptors, because removal flattens the tree; a
measurement looks at a bounded number of entries.
"""

# ruff: noqa: PTH102, PTH106, PTH208  # single system calls: below what pathlib covers
from __future__ import annotations

import errno
import os
from contextlib import suppress

MOST_ENTRIES = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: str, uid: int | None) -> None:
    """Make a directory that only this user can enter (None: the present one)."""
    os.mkdir(path, 0o700)
    if uid is not None:
        os.chown(path, uid, uid)


def remove(path: str) -> None:
    """Remove a directory and all that is in it, provided that nobody writes there any more; none is no error."""
    try:
        top = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(top: int) -> None:
    lifted = 0
    while names := os.listdir(top):
        for name in names:
            if _unlinked(name, top):
                continue
            os.chmod(name, 0o700, dir_fd=top)  # a directory here: no link that could be followed
            inner = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                for child in os.listdir(inner):
                    if not _unlinked(child, inner):
                        os.chmod(child, 0o700, dir_fd=inner)
                        lifted += 1
                        os.rename(child, f".lifted-{os.getpid()}-{lifted}", src_dir_fd=inner, dst_dir_fd=top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _unlinked(name: str, directory: int) -> bool:
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        return False
    return True


def exceeds(path: str, most_bytes: int) -> bool:
    """Say whether the files below hold more than `most_bytes`, or are more than a program may have."""
    total = entries = 0
    folders = [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    with suppress(OSError):  # gone meanwhile
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if total > most_bytes or entries > MOST_ENTRIES:
                        return True
        except OSError as error:  # gone meanwhile, or closed to us: but what is out of reach of a path is there to hide
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False
