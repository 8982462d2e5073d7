"""Threads that keep what a server does beside its event loop waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ReluctantThreads(ThreadPoolExecutor):
    """Does the first `free` jobs at once, and the others when `go_on` is set; `jobs` says how many came."""

    def __init__(self, free: int) -> None:
        super().__init__(1)
        self.go_on = threading.Event()
        self.jobs = 0
        self._free = free
        asyncio.get_running_loop().set_default_executor(self)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Take a job."""
        if self.jobs == self._free:
            super().submit(self.go_on.wait, 10)
        self.jobs += 1
        return super().submit(fn, *args, **kwargs)
