"""The process of a router: `python -m reward_loop.router`, started by RouterProcess.

It reads its settings from the first line of standard input, answers with {"host", "port", "pid"} in one line on standard output,
and writes its log to standard error, one event per line as JSON.

Invariants: SIGTERM lets what is in flight end before it exits; it ends with its parent, whatever became of that; it loads nothing
heavy.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import os
import resource
import signal
import sys

import uvloop

from reward_loop.errors import RouterError
from reward_loop.router.control import Control
from reward_loop.router.health import Health
from reward_loop.router.server import RouterServer
from reward_loop.router.startup import read_startup

_ORPHAN_DRAIN_S = 2.0
_ORPHAN_CHECK_S = 1.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class JsonLines(logging.Formatter):
    """One line per event: its level, where it is from and what happened, with the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return json.dumps({"level": record.levelno, "name": record.name, "message": super().format(record)})


def main() -> int:
    """Serve until told to stop; the exit code is 0, or 1 where it could not start."""
    parent = os.getppid()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then says what to do
    _allow_connections()
    _keep_freed_memory()
    try:
        uvloop.run(serve(sys.stdin.buffer.readline(), parent))
    except (RouterError, OSError) as error:
        logging.getLogger("reward_loop.router").error("%s", error)
        return 1
    return 0


async def serve(startup: bytes, parent: int) -> None:
    """Serve until SIGTERM, or until the process `parent` is gone. Raises RouterError or OSError where that can't begin."""
    settings, fleet = read_startup(startup)
    server = RouterServer(settings, Control(fleet, settings.admin_token))
    server.fleet = fleet
    drain_s: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    host, port = await server.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop, drain_s, settings.drain_timeout_s)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _read, drain_s)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(Health(fleet, settings).run()), tasks.create_task(_watch_parent(parent, drain_s))]
        print(json.dumps({"host": host, "port": port, "pid": os.getpid()}), flush=True)  # noqa: T201 - the parent waits for it
        gc.freeze()  # what is loaded by now stays: the collector needn't look at it while requests wait
        await server.drain_and_close(await drain_s)
        for task in running:
            task.cancel()


def _stop(drain_s: asyncio.Future[float], seconds: float) -> None:
    if not drain_s.done():
        drain_s.set_result(seconds)


def _read(drain_s: asyncio.Future[float]) -> None:
    """Nothing more is said on standard input; its end is that of the parent."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        _stop(drain_s, _ORPHAN_DRAIN_S)


async def _watch_parent(parent: int, drain_s: asyncio.Future[float]) -> None:
    """A process that the parent has forked may hold standard input open when the parent itself is gone."""
    while os.getppid() == parent:  # noqa: ASYNC110 - no event says that a parent changed
        await asyncio.sleep(_ORPHAN_CHECK_S)
    _stop(drain_s, _ORPHAN_DRAIN_S)


def _allow_connections() -> None:
    """Each request in flight takes two descriptors; many systems allow 1024 unless asked."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keep_freed_memory() -> None:
    """Have glibc keep what large bodies took: giving it back and faulting it in again is a quarter of their cost."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)


if __name__ == "__main__":
    sys.exit(main())
