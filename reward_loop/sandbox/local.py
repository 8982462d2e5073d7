"""The sandbox of this machine: programs run in processes of its own nursery.

Invariants: at most `places` programs run side by side, and waiting for a place stops the sample's clock; a nursery that died is
replaced for the next program; how a program ended is judged by what the kernel and the nursery say, never by what it says itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Literal

from reward_loop.config import SandboxConfig
from reward_loop.deadline import waiting
from reward_loop.errors import ConfigError, SandboxError
from reward_loop.sandbox.descriptors import Output, Parcel
from reward_loop.sandbox.interpreter import Interpreter, open_memory
from reward_loop.sandbox.nursery import Ended, Nursery
from reward_loop.sandbox.probe import choose_level, probe
from reward_loop.sandbox.trials import run_trial
from reward_loop.sandbox.verdict import Limits, ProgramRun, TestResult

logger = logging.getLogger(__name__)

_CONTAINS = 2
"""The level from which on nothing that a program starts can get away; below it is worth a warning."""
_OUT_OF_MEMORY = re.compile(rb"(?:^|\n)MemoryError(?::[^\n]*)?\n?$")


class LocalSandbox:
    """Runs programs on this machine; made by `open_local_sandbox`."""

    def __init__(self, config: SandboxConfig, interpreter: Interpreter, level: int, description: str, places: int) -> None:
        self.level, self.description = level, description
        self._interpreter, self._places = interpreter, places
        self._limits = configured_limits(config)
        self._free = asyncio.Semaphore(places)
        self._starting = asyncio.Lock()
        self._nursery: Nursery | None = None
        self._closed = False

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        """Run Python source as a main program with this standard input; None: the configured limits."""
        limits = limits or self._limits
        async with self._place() as nursery:
            with ExitStack() as stack:
                parcel = stack.enter_context(Parcel())
                parcel.add(open_memory("program", source.encode("utf-8", "surrogatepass")))
                parcel.add(open_memory("stdin", stdin))
                outputs: list[Output] = []
                for _ in ("stdout", "stderr"):
                    reading, writing = os.pipe()
                    parcel.add(writing)
                    outputs.append(Output(reading, limits.output_bytes))
                    stack.enter_context(outputs[-1].reader)
                ended = await nursery.run("program", parcel, limits, cpu_s=limits.wall_s, wall_s=limits.wall_s)
                stdout, stderr = (output.finish() for output in outputs)
        how = _how(ended, outputs[1].tail)
        truncated = any(output.truncated for output in outputs)
        return ProgramRun(how, ended.exit_code if how != "timeout" else None, stdout, stderr, truncated, ended.seconds)

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        """Run test snippets against what Python source defines; see `Sandbox`.

        Without `stop_at_failure`, the tests after one that took the program's process with it run in a fresh one, where what
        earlier tests defined is not there.
        """
        results: list[TestResult] = []
        while len(results) < len(tests):
            remaining = tests[len(results) :]
            async with self._place() as nursery:
                results += await run_trial(
                    nursery, source, remaining, setup, limits or self._limits, stop_at_failure=stop_at_failure
                )
            if stop_at_failure and results[-1].verdict != "passed":
                break
        return results

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[Nursery]:
        with waiting():
            await self._free.acquire()
        try:
            yield await self._living_nursery()
        finally:
            self._free.release()

    async def _living_nursery(self) -> Nursery:
        async with self._starting:
            if self._closed:
                raise SandboxError("the sandbox is closed; open another one")
            if self._nursery is not None and self._nursery.dead is not None:
                logger.warning("sandbox: %s", self._nursery.dead)
                self._nursery.kill()
                self._nursery = None
            if self._nursery is None:
                self._nursery = await Nursery.start(self._interpreter, self.level, self._places)
            return self._nursery

    @property
    def pid(self) -> int | None:
        """The process below which all programs run; None before the first and after `close`."""
        return None if self._nursery is None else self._nursery.pid

    async def start(self) -> None:
        """Start the nursery now rather than with the first program."""
        await self._living_nursery()

    async def close(self) -> None:
        """End everything that was started."""
        async with self._starting:
            self._closed = True
            nursery, self._nursery = self._nursery, None
        if nursery is not None:
            await nursery.close()


async def open_local_sandbox(config: SandboxConfig, places: int) -> LocalSandbox:
    """Start this machine's sandbox for so many programs side by side, at the level that the config asks for.

    Raises ConfigError where the machine does not offer the level, or has no interpreter for programs; SandboxError where it does
    not start.
    """
    if places < 1:
        raise ConfigError(f"a sandbox with {places} places runs nothing; give it at least 1 (sandbox.max_concurrent)")
    found = await asyncio.to_thread(probe, config)
    level = choose_level(config, found)
    sandbox = LocalSandbox(config, found.interpreter, level, found.describe(level), places)
    await sandbox.start()
    loudness = logging.INFO if level >= _CONTAINS else logging.WARNING
    logger.log(loudness, "sandbox: %s, %d programs side by side, on %s", sandbox.description, places, found.interpreter.path)
    return sandbox


def configured_limits(config: SandboxConfig) -> Limits:
    """Return the limits of a program that the config sets."""
    return Limits(config.timeout_s, config.memory_mb, config.file_mb, config.max_processes, config.output_kb * 1024)


def _how(ended: Ended, end_of_stderr: bytes) -> Literal["exited", "timeout", "oom", "crashed"]:
    if ended.oom:
        return "oom"
    if ended.why == "timeout" or ended.signal == signal.SIGXCPU:
        return "timeout"
    if ended.why is not None or ended.signal is not None:
        return "crashed"
    return "oom" if ended.exit_code == 1 and _OUT_OF_MEMORY.search(end_of_stderr) else "exited"
