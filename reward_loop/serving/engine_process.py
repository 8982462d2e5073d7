"""The driver's handle of one run of a server process: started, watched and ended through its keeper.

Invariants: a run ends once, and `ended` says how; when it has, nothing of it is left, neither processes nor shared memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from reward_loop.serving.command import Command

_MAIN = (
    "import json, sys; settings = json.loads(sys.stdin.readline()); sys.path[:] = settings['path']; "
    "from reward_loop.serving.keeper import main; main(settings)"
)
_KILLING_S = 3.0
"""Seconds beyond the server's own in which the keeper has killed everything."""


class Settings(TypedDict):
    """What the keeper is told."""

    path: list[str]
    driver: int
    command: list[str]
    environment: dict[str, str]
    log: str
    run_dir: str
    update_dir: str | None
    """What is kept from run to run, and removed if nobody is there for another: when the driver is gone."""
    heir_wait_s: float
    """How long another driver has then to take it over."""
    memory_mb: int | None
    grace_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    reason: str
    """`server` ended by itself, `stop` was asked for, `memory` went over the bound, or the `keeper` was killed."""
    status: int | None = None
    """Exit status, negative for a signal; None if it had to be killed."""

    def describe(self, memory_mb: int | None) -> str:
        """Say it in words."""
        if self.reason == "memory":
            return f"was killed because it took more than server.memory_mb={memory_mb} MiB; raise that, or lower cpu_kv_cache_mb"
        if self.reason == "keeper":
            return "was killed because the process that keeps it was"
        if self.status is not None and self.status < 0:
            return f"was killed by signal {-self.status}"
        return f"ended with status {self.status}"


def new_run_dir() -> str:
    """Make the directory of a run's sockets, which its keeper removes; short, since a socket's path may have 107 bytes."""
    return tempfile.mkdtemp(prefix="rl-")


class EngineProcess:
    """One run of a server process."""

    def __init__(self, process: asyncio.subprocess.Process, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s
        self._ended: Ended | None = None
        self._listening = asyncio.create_task(self._listen())
        self.pid = 0
        """The API server's, once `started` has returned."""
        self._started = asyncio.Event()

    @classmethod
    async def start(
        cls,
        command: Command,
        *,
        log: Path,
        run_dir: str,
        update_dir: str | None = None,
        heir_wait_s: float = 0.0,
        memory_mb: int | None = None,
        grace_s: float = 3.0,
    ) -> EngineProcess:
        """Start the server; it gets `grace_s` seconds to end when it is told to, then it is killed."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", "-c", _MAIN),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C in the driver's terminal is the driver's to handle
            )
        settings = Settings(
            path=[str(Path(__file__).parents[2]), *sys.path],
            driver=os.getpid(),
            command=list(command.arguments),
            environment=dict(command.environment),
            log=str(log),
            run_dir=run_dir,
            update_dir=update_dir,
            heir_wait_s=heir_wait_s,
            memory_mb=memory_mb,
            grace_s=grace_s,
        )
        engine = cls(process, grace_s)
        await engine._write(json.dumps(settings).encode() + b"\n")
        await engine._started.wait()
        return engine

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._ended is None

    async def ended(self) -> Ended:
        """Wait for its end."""
        return await asyncio.shield(self._listening)

    async def stop(self) -> Ended:
        """Let it end, or kill it after its grace; returns when nothing of it is left."""
        if (stdin := self._process.stdin) is not None:
            stdin.close()
        if self._listening.cancelled():  # its loop is being closed, which cancels every task, but still has to end this
            self._listening = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(self._grace_s + _KILLING_S):
                return await self.ended()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()  # the inner keeper, if it is the one that hangs, learns of it and kills the rest
            return await self.ended()

    async def _write(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise RuntimeError("the keeper was started without an input")
        with suppress(ConnectionError):  # it died, which `ended` says
            stdin.write(line)
            await stdin.drain()

    async def _listen(self) -> Ended:
        ended = Ended("keeper")
        stdout = self._process.stdout
        while stdout is not None and (line := await stdout.readline()):
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "started":
                self.pid = event["pid"]
                self._started.set()
            else:
                ended = Ended(event["reason"], event["status"])
        await self._process.wait()
        self._ended = ended
        self._started.set()
        return ended
