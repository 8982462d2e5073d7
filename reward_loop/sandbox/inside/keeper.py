"""The process above the nursery, which only outlives it: what a dying nursery leaves behind becomes its child, and is killed.

Invariants: it runs no program and reads no message; it ends as soon as the nursery has ended and nothing is left below; when
it is itself killed, the nursery is told to end, and the other way round.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

from reward_loop.sandbox.inside import cgroup, directories, kernel, nursery

_TICK_S = 0.002


def main(settings: dict[str, Any]) -> None:
    """Fork the nursery, wait for its end, and kill what it has left."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        nursery.main(dict(settings, keeper=me))
        return
    os.close(settings["control"])  # or the parent would never learn of the nursery's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    kernel.die_with_parent(signal.SIGTERM)
    if os.getppid() != settings["parent"]:
        os.kill(pid, signal.SIGTERM)
    while True:
        try:
            ended, _ = os.wait()
        except ChildProcessError:
            break
        if ended == pid:
            break
    while _reaped():
        for orphan in nursery.children():
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(_TICK_S)
    cgroup.remove_all(pid)
    with suppress(OSError):
        directories.remove(settings["base"])


def _reaped() -> bool:
    """Reap what has ended; say whether there is still a child."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
