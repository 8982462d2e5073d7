"""The driver's handle of its nursery: the process, and what passes over the control channel."""

from __future__ import annotations

import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from reward_loop.isolation.nursery import COMMAND, Setup

_MAIN = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from reward_loop.isolation.nursery import main; main()"
# There is a process per core: libraries that start a thread per core in each would be in each other's way.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_CLOSING_S = 5.0
_BUSY_S = 1.0


class NurseryProcess:
    """A running nursery; `control` becomes readable when it reports something."""

    def __init__(self, setup: Setup) -> None:
        # One message a packet, so that commands and reports need no framing.
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        with theirs, tempfile.TemporaryFile() as file:
            pickle.dump(sys.path, file)
            pickle.dump(setup, file)
            file.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of ours
                [sys.executable, "-c", _MAIN, str(theirs.fileno())],
                stdin=file,
                pass_fds=[theirs.fileno()],
                env=_ENVIRONMENT | os.environ,
                start_new_session=True,
            )
        self._ready = False

    def fork(self, channel: socket.socket) -> None:
        """Ask for a grader process at the other end of `channel`."""
        self._tell(b"fork", channel.fileno())

    def kill(self, pid: int) -> None:
        """Ask for a grader's death, with all that it started."""
        self._tell(b"kill %d" % pid)

    def _tell(self, command: bytes, *descriptors: int) -> None:
        while True:
            try:
                socket.send_fds(self.control, [command], descriptors)
            except BlockingIOError:  # it is forking, which takes milliseconds
                select.select([], [self.control], [], _BUSY_S)
            except ConnectionError:  # it died, which `reports` says
                return
            else:
                return

    def reports(self) -> Iterator[tuple[str, str]]:
        """Yield what it has reported, as (kind, text); the kind is "gone" when the process is."""
        while True:
            try:
                report = self.control.recv(COMMAND)
            except BlockingIOError:
                return
            except ConnectionError:
                report = b""
            kind, _, text = report.decode(errors="replace").partition(" ")
            self._ready |= kind == "ready"
            yield kind or "gone", text
            if not report:
                return

    def close(self) -> None:
        """End it, and everything that descends from it."""
        self.control.close()
        if not self._ready:  # it is loading the function, and would not notice
            self._process.kill()
        try:
            self._process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
