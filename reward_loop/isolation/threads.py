"""Daemon threads for synchronous reward functions, and the rule by which their number grows.

Invariants: a thread runs one function at a time; one that was abandoned (its deadline passed) no longer counts, so hung
functions never use the others up; no thread keeps the interpreter from exiting.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from reward_loop.errors import RewardFunctionError
from reward_loop.outcome import describe

T = TypeVar("T")
Job = Callable[[], None]

_IDLE_SHARE = 0.5
_CLOSING_S = 0.2


def threads_wanted(threads: int, cpu_seconds: float, inside_seconds: float, wall_seconds: float, max_threads: int) -> int:
    """Return how many threads should pull samples while more are waiting.

    Functions that compute share one interpreter lock, so a second thread gains nothing; functions that block (a request, a
    sleep) leave the processor idle, and the number doubles until they do not. `cpu_seconds` is what all threads together
    computed within the last `wall_seconds`, `inside_seconds` how long they were inside the function.
    """
    blocked = cpu_seconds < _IDLE_SHARE * wall_seconds and inside_seconds > _IDLE_SHARE * threads * wall_seconds
    return min(2 * threads, max_threads) if blocked else threads


def cpu_seconds(thread: threading.Thread) -> float:
    """Return the processor time that a live thread has used so far, in seconds."""
    # Without it (macOS, Windows) every function looks computing or blocking together with the rest of the process.
    if not hasattr(time, "pthread_getcpuclockid") or thread.ident is None or not thread.is_alive():
        return time.process_time()
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


class ThreadCrew:
    """At most `max_threads` daemon threads, started when needed and kept; `concurrent.futures` joins its own at exit."""

    def __init__(self, max_threads: int, name: str = "reward") -> None:
        self._max_threads = max_threads
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._counted: set[threading.Thread] = set()

    def submit(self, job: Job) -> None:
        """Run `job` (which must not raise) in a thread as soon as one is free."""
        with self._lock:
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1  # here, not where the thread wakes up: the next job must not count on it too
                return
            if len(self._counted) >= self._max_threads:
                return
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._counted)}", daemon=True)
            self._counted.add(thread)
        thread.start()

    def abandon(self, thread: threading.Thread) -> None:
        """Stop counting a thread whose function hangs, so that another may take its place; it ends after its job."""
        with self._lock:
            self._counted.discard(thread)
            waiting = not self._jobs.empty()
        if waiting:
            self.submit(_nothing)

    async def call(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run `function` in a thread and return its result; when the caller is cancelled its thread is abandoned."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()
        thread: list[threading.Thread] = []

        def job() -> None:
            thread.append(threading.current_thread())
            if ended.cancelled():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the caller's to judge; user code may raise anything
                thread.clear()
                _post(loop, ended, error=error)
            else:
                thread.clear()
                _post(loop, ended, result=result)

        self.submit(job)
        try:
            return await ended
        except asyncio.CancelledError:
            for hung in tuple(thread):  # none if it just ended
                self.abandon(hung)
            raise

    def close(self) -> None:
        """Let every idle thread end; one that runs a function ends after it, and is not waited for."""
        with self._lock:
            threads = tuple(self._counted)
            for _ in threads:
                self._jobs.put(None)
            self._counted.clear()
        # A daemon thread that is about to end when the interpreter does can abort it: give them the moment that they need.
        deadline = time.monotonic() + _CLOSING_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        this = threading.current_thread()
        while (job := self._next(this)) is not None:
            job()

    def _next(self, this: threading.Thread) -> Job | None:
        """Return the next job as soon as there is one; None: the thread ends."""
        with self._lock:
            if this not in self._counted:
                return None
            try:
                return self._jobs.get_nowait()
            except queue.Empty:
                self._idle += 1
        return self._jobs.get()


def _post(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[T], **outcome: Any) -> None:
    def settle() -> None:
        if ended.done():
            return
        if "error" in outcome:
            ended.set_exception(as_error(outcome["error"]))
        else:
            ended.set_result(outcome["result"])

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop was closed while the function ran: nobody waits for its result
        return


def as_error(raised: BaseException) -> Exception:
    """Return what user code raised as something that a future can hold, and that ends no task or loop that awaits it."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    return RewardFunctionError(describe(raised)).with_traceback(raised.__traceback__)


def _nothing() -> None:
    return
