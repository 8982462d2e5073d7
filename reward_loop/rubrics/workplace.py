"""What a composer shares with its clones: threads and a loop to run rubrics in, and what was warned of."""

from __future__ import annotations

import threading
from functools import cached_property

from reward_loop.isolation.threads import ThreadCrew
from reward_loop.loop_thread import LoopThread

_MAX_THREADS = 64


class Workplace:
    """Starts threads when they are needed first; those of a crew that was passed in are its owner's to end."""

    def __init__(self, threads: ThreadCrew | None) -> None:
        self._given = threads
        self._lock = threading.Lock()
        self._warned = set[str]()

    @cached_property
    def threads(self) -> ThreadCrew:
        """The threads in which synchronous rubrics run."""
        return self._given or ThreadCrew(_MAX_THREADS, name="rubric")

    @cached_property
    def loop(self) -> LoopThread:
        """The event loop of those who have none."""
        return LoopThread("rubrics")

    def first_time(self, name: str) -> bool:
        """Return whether nobody was warned of a rubric yet, and note that somebody is."""
        with self._lock:
            first = name not in self._warned
            self._warned.add(name)
        return first

    def close(self) -> None:
        """End the threads that were started here; the next use starts others."""
        if (loop := self.__dict__.pop("loop", None)) is not None:
            loop.close(_nothing)
        if (threads := self.__dict__.pop("threads", None)) is not None and self._given is None:
            threads.close()


async def _nothing() -> None:
    return
