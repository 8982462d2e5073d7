"""Folders that are being written: nobody reads them, and what a killed process left of them goes when another writes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

from reward_loop.rinker.engine.checkpoint_files import flush

_NAME = re.compile(r"\.unfinished-(.+)-(\d+)-[^-]*")
_REPLACED = ".replaced-"


def unfinished_prefix() -> str:
    """Return what the name of a folder begins with while this process writes it."""
    return f".unfinished-{socket.gethostname()}-{os.getpid()}-"


def sweep(parent: Path) -> None:
    """Remove what processes of this machine left that are no more; others may be at work, on other machines too."""
    for folder in parent.glob(".unfinished-*"):
        name = _NAME.fullmatch(folder.name)
        if name is not None and name[1] == socket.gethostname() and not _alive(int(name[2])):
            shutil.rmtree(folder, ignore_errors=True)


def take_place(folder: Path, directory: Path) -> None:
    """Give a finished folder its name; what bore it goes once the new one is there (killed before, it stays as `.replaced-…`)."""
    if directory.exists():
        old = Path(tempfile.mkdtemp(prefix=_REPLACED, dir=directory.parent))
        directory.rename(old / directory.name)
        try:
            folder.rename(directory)
        except OSError:
            (old / directory.name).rename(directory)
            old.rmdir()
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        folder.rename(directory)
    flush(directory.parent, below=False)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OverflowError:  # no process has such a number
        return False
    except PermissionError:
        return True
    return True
