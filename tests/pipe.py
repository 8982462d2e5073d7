"""A way for a reward function in another process and its test to wait for each other, without a clock."""

from __future__ import annotations

import os
import select
from pathlib import Path


class Pipe:
    """A named pipe. The function opens `path`: its `write_text` never blocks, its `readline` waits for `say`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # open at both ends, so that nobody waits for the other to open

    def hear(self, wait_s: float = 30.0) -> str:
        """Return what the function wrote; BlockingIOError if nothing comes."""
        select.select([self._fd], [], [], wait_s)
        return os.read(self._fd, 1000).decode()

    def say(self, line: str) -> None:
        """Let the function read a line."""
        os.write(self._fd, f"{line}\n".encode())

    def close(self) -> None:
        """Close it at this end."""
        os.close(self._fd)
