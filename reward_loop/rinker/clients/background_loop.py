"""The event loop on which the clients of this process do their work."""

from __future__ import annotations

import atexit
import functools
import os

from reward_loop.loop_thread import LoopThread

_FAREWELL_S = 2.0
"""Seconds that the end of the process waits for connections to be closed."""


def background_loop() -> LoopThread:
    """Return the loop of this process, which begins when it is first asked for and ends with the process.

    One for all clients: a result of one can be waited for in an operation of another.
    """
    # By process: after a fork the child has the object, but not its thread.
    return _loop_of(os.getpid())


@functools.cache
def _loop_of(process_id: int) -> LoopThread:
    thread = LoopThread(f"rinker-clients-{process_id}")
    atexit.register(_end, thread, process_id)
    return thread


def _end(thread: LoopThread, process_id: int) -> None:
    if os.getpid() == process_id:  # a fork inherits what is registered, and no thread
        thread.end_generators(_FAREWELL_S)
