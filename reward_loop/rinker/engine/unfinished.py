"""Folders that are being written: nobody reads them, and what a killed process left of them goes when another writes."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path

_NAME = re.compile(r"\.unfinished-(.+)-(\d+)-[^-]*")


def unfinished_prefix() -> str:
    """Return what the name of a folder begins with while this process writes it."""
    return f".unfinished-{socket.gethostname()}-{os.getpid()}-"


def sweep(parent: Path) -> None:
    """Remove what processes of this machine left that are no more; others may be at work, on other machines too."""
    for folder in parent.glob(".unfinished-*"):
        name = _NAME.fullmatch(folder.name)
        if name is not None and name[1] == socket.gethostname() and not _alive(int(name[2])):
            shutil.rmtree(folder, ignore_errors=True)


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
