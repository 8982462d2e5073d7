"""One run of the router's process, seen from its parent.

Invariants: while it lives, its standard input is open, and closing that ends it; its log goes to this process's logging.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import reward_loop
from reward_loop.errors import RouterError
from reward_loop.router.fleet import Replica
from reward_loop.router.settings import RouterSettings
from reward_loop.router.startup import write_startup

_COMMAND = (sys.executable, "-P", "-m", "reward_loop.router")
_ROOT = str(Path(reward_loop.__file__).resolve().parents[1])
_LONGEST_LINE = 1 << 20


class RouterChild:
    """A router that was ready when `start` returned; `host` and `port` say where."""

    def __init__(self, process: Process, host: str, port: int) -> None:
        self._process = process
        self.host = host
        self.port = port

    @classmethod
    async def start(cls, settings: RouterSettings, replicas: Iterable[Replica], timeout_s: float) -> Self:
        """Start a router with these replicas; RouterError, with what it said, when it is not ready within `timeout_s`."""
        path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
        try:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_LONGEST_LINE,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # a Ctrl-C is this process's to handle: requests in flight may end
            )
        except OSError as error:
            raise RouterError(f"the router's process can't be started: {error}") from error
        try:
            async with asyncio.timeout(timeout_s):
                return await cls._greet(process, write_startup(settings, replicas))
        except BaseException as error:  # cancelled too: no router may stay behind that nobody knows of
            await _kill(process)
            if isinstance(error, TimeoutError):
                raise RouterError(f"the router was not ready within {timeout_s:g} s; the machine may be overloaded") from None
            raise

    @classmethod
    async def _greet(cls, process: Process, startup: bytes) -> Self:
        stdin, stdout, stderr = _pipes(process)
        stdin.write(startup)
        if not (line := await stdout.readline()):
            said = [_read_event(line) for line in (await stderr.read()).splitlines()]
            why = "\n".join(message for _, _, message in said[-20:]) or "it said nothing"
            raise RouterError(f"the router ended with code {await process.wait()} before it was ready: {why}")
        ready = json.loads(line)
        return cls(process, ready["host"], ready["port"])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def run(self) -> int:
        """Pass its log on until it ends; return its exit code, negative for a signal."""
        _, _, stderr = _pipes(self._process)
        while line := await _line_of(stderr):
            level, name, message = _read_event(line)
            logging.getLogger(name).log(level, "%s", message)
        return await self._process.wait()

    async def stop(self, timeout_s: float) -> None:
        """Let what is in flight end, for at most `timeout_s` seconds; then kill it. `run` must be running."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            await _kill(self._process)


def _pipes(process: Process) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.StreamReader]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RouterError("the router's process was started without pipes")
    return process.stdin, process.stdout, process.stderr


async def _line_of(stderr: asyncio.StreamReader) -> bytes:
    try:
        return await stderr.readline()
    except ValueError:  # longer than any line of a log should be; the pipe must not fill up
        return b"(a line of the router's log was too long)"


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _read_event(line: bytes) -> tuple[int, str, str]:
    """Return level, logger and message of a line of the router's log; what Python itself wrote is an error."""
    try:
        event: Any = json.loads(line)
        return int(event["level"]), str(event["name"]), str(event["message"])
    except (ValueError, TypeError, KeyError):
        return logging.ERROR, "reward_loop.router", line.decode(errors="replace").rstrip()
