"""Files of trainers that were killed, and could not remove them: what a living trainer made is locked by it.

A lock ends with the process that holds it, which a file's age or a process's number (in which container?) would not tell.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def lock(file: int) -> None:
    """Mark this open file or directory as that of a living process, until it is closed; a file system may know no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # `abandoned` can't lock it either, and leaves it alone


def abandoned(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield those of these paths that nobody has locked."""
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError:
            continue  # gone meanwhile, or another user's
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield path
        except OSError:
            continue  # its trainer lives, or there are no locks here
        finally:
            os.close(file)
