"""One grader process as its pool sees it: its channel, and the samples that it has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reward_loop.errors import RewardLoopError
from reward_loop.isolation.frames import Frames, framed

_PIECE = 1 << 18


@dataclass(slots=True, eq=False)
class Job:
    """A sample on its way through the pool."""

    ticket: bytes
    inputs: bytes
    result: asyncio.Future[Any]
    nurseries_lost: int = 0


@dataclass(slots=True, eq=False)
class Grader:
    """`jobs` are those handed over that have no result; the first one is under way, since `since`."""

    channel: socket.socket
    pid: int | None = None
    jobs: deque[Job] = field(default_factory=deque)
    since: float = 0.0
    ready: bool = False
    """It has loaded the function and waits for samples."""
    end: RewardLoopError | None = None
    """Why it was told to end; no more jobs for it."""
    closed: bool = False
    """Nothing more can come from it."""
    stuck: bool = False
    """Its sample takes many times longer than samples do."""
    _frames: Frames = field(default_factory=Frames)
    _unsent: bytearray = field(default_factory=bytearray)

    @property
    def usable(self) -> bool:
        """Whether it can be given samples."""
        return self.ready and not (self.end or self.closed or self.stuck)

    def running_s(self, now: float) -> float:
        """Return how long the sample under way has been running; 0 without one."""
        return now - self.since if self.jobs else 0.0

    def give(self, job: Job, now: float) -> None:
        """Put a job behind those that it has; `flush` sends it."""
        if not self.jobs:
            self.since = now
        self.jobs.append(job)
        self.write(job.ticket + job.inputs)

    def write(self, payload: bytes) -> None:
        """Append a frame to what is to be sent."""
        self._unsent += framed(payload)

    def flush(self) -> bool:
        """Send what fits without blocking; whether something is left."""
        if self._unsent and not self.closed:
            try:
                del self._unsent[: self.channel.send(self._unsent)]
            except BlockingIOError:
                return True
            except ConnectionError:  # it is dying, which the nursery will report
                self._unsent.clear()
        return bool(self._unsent)

    def read(self) -> Iterator[bytes]:
        """Yield the frames that have arrived; sets `closed` at the end of the channel. DataError for what is no frame."""
        try:
            piece = self.channel.recv(_PIECE)
        except BlockingIOError:
            return
        except ConnectionError:
            piece = b""
        self.closed |= not piece
        yield from self._frames.feed(piece)

    def slow_down(self, nice: int) -> None:
        """Let the other processes have the processor first; can't be taken back."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pid is not None and os.getpriority(os.PRIO_PROCESS, self.pid) < nice:
                os.setpriority(os.PRIO_PROCESS, self.pid, nice)


def cause_of_death(status: int) -> str:
    """Return an exit status in words: the exit code, or the name of the signal."""
    if status >= 0:
        return f"exit code {status}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        return f"{name}, perhaps for want of memory" if name == "SIGKILL" else name
    return f"signal {-status}"
