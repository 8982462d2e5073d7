"""Commits and reverts that are killed: `python -m tests.serving.inside.killed_commits DIRECTORY commit|revert`.

Each is done in a directory of its own, DIRECTORY/0, 1, 2…, by a process that is killed when it is about to touch the file system
for the first, second, third… time. The last one is not killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from reward_loop.serving.inside.update_directory import UpdateDirectory

OLD, NEW = 3, 4
NAMES = ["score.weight"]
_TOUCHING = ("open", "os.rename", "os.remove", "os.mkdir")


def committed(path: Path, *versions: int) -> UpdateDirectory:
    """Return a directory to which these versions were committed."""
    directory = UpdateDirectory(path)
    for version in versions:
        staged(directory, version)
        directory.commit(version, NAMES)
    return directory


def staged(directory: UpdateDirectory, version: int) -> None:
    """Stage an update, whose bytes are its version."""
    directory.path.mkdir(parents=True, exist_ok=True)
    directory.staged.write_text(str(version))


def killed_at(touch: int, act: Callable[[], None]) -> bool:
    """Do it in a process that is killed at this touch of the file system; says whether it was."""
    child = os.fork()
    if child == 0:
        left = touch

        def count(event: str, _: object) -> None:
            nonlocal left
            if event in _TOUCHING:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        act()
        os._exit(0)
    return bool(os.WIFSIGNALED(os.waitpid(child, 0)[1]))


def main(path: Path, what: str) -> None:
    """Go on until one is not killed any more."""
    for touch in range(100):
        directory = committed(path / str(touch), OLD - 1, OLD)
        if what == "revert":
            committed(path / str(touch), NEW)
            killed = killed_at(touch, directory.revert)
        else:
            staged(directory, NEW)
            killed = killed_at(touch, lambda: directory.commit(NEW, NAMES))  # noqa: B023 - it is called at once
        if not killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
