"""One trial of a program: its process, the judge's process, and what the judge reports to us.

Invariants: the judge's reports come on a pipe that the program's process never has, and each bears a secret that only the
judge was told; a test has passed only where such a report says so; no process of a trial outlives it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, get_args

from reward_loop.errors import SandboxError
from reward_loop.sandbox.descriptors import Lines, Parcel
from reward_loop.sandbox.interpreter import open_memory
from reward_loop.sandbox.nursery import Ended, Nursery
from reward_loop.sandbox.verdict import Limits, TestResult, Verdict

_JUDGE_MB = 1024
_DEATH_S = 5.0


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one trial knows while it runs."""

    lines: Lines
    program: asyncio.Task[Ended]
    judge: asyncio.Task[Ended]
    nonce: str
    limits: Limits
    tests: int
    stop_at_failure: bool


async def run_trial(
    nursery: Nursery, source: str, tests: Sequence[str], setup: str, limits: Limits, *, stop_at_failure: bool
) -> list[TestResult]:
    """Run tests until the program's process can't go on, and return the results so far: at least one, all where it never
    loaded."""
    nonce = secrets.token_hex(16)
    task = {"nonce": nonce, "setup": setup, "tests": list(tests), "stop_at_failure": stop_at_failure}
    with ExitStack() as stack:
        judged, served = stack.enter_context(Parcel()), stack.enter_context(Parcel())
        judged.add(open_memory("tests", json.dumps(task).encode()))
        served.add(open_memory("program", source.encode("utf-8", "surrogatepass")))
        for line, end in zip(socket.socketpair(), (judged, served), strict=True):
            end.add(line.detach())
        reading, writing = os.pipe()
        judged.add(writing)
        lines = Lines(reading)
        stack.enter_context(lines.reader)
        cpu_s = limits.wall_s * (len(tests) + 1)
        trusted = replace(limits, memory_mb=max(_JUDGE_MB, limits.memory_mb))
        try:
            async with asyncio.TaskGroup() as group:
                program = group.create_task(nursery.run("served", served, limits, cpu_s=cpu_s, wall_s=None))
                judge = group.create_task(nursery.run("tester", judged, trusted, cpu_s=cpu_s, wall_s=None))
                trial = _Trial(lines, program, judge, nonce, limits, len(tests), stop_at_failure)
                results = await _results(trial)
                program.cancel()
                judge.cancel()
        except ExceptionGroup as errors:
            raise _ours(errors) from errors
    return results


def _ours(errors: ExceptionGroup[Exception]) -> SandboxError:
    first = next((error for error in errors.exceptions if isinstance(error, SandboxError)), None)
    if first is None:
        raise errors
    return SandboxError(first.message)


async def _results(trial: _Trial) -> list[TestResult]:
    results: list[TestResult] = []
    loaded = False
    while len(results) < trial.tests:
        try:
            said = await _report(trial)
        except TimeoutError:
            late = TestResult("timeout", f"not done within {trial.limits.wall_s} s", trial.limits.wall_s)
            return [*results, late] if loaded else [replace(late, message="the program was not loaded in time")] * trial.tests
        if said["event"] == "loaded":
            loaded = True
            continue
        if said["event"] == "invalid":
            raise SandboxError(f"the tests of a program can't run, whatever the program: {said['message']}")
        result = await _result(trial, said)
        if said["event"] == "unloadable":
            return [result] * trial.tests
        results.append(result)
        if result.verdict != said["verdict"] or result.verdict in ("crashed", "tampered", "oom"):
            return results
        if trial.stop_at_failure and result.verdict != "passed":
            return results
    return results


async def _report(trial: _Trial) -> dict[str, Any]:
    line = await trial.lines.next(trial.limits.wall_s)
    if line is None:
        ended = await trial.judge
        raise SandboxError(f"the judge of a program ended before its tests did ({ended}); a test may have ended its own process")
    said: dict[str, Any] = json.loads(line)
    if said.get("nonce") != trial.nonce:
        raise SandboxError("the judge's pipe carries a report that is not the judge's")
    return said


async def _result(trial: _Trial, said: dict[str, Any]) -> TestResult:
    if said["verdict"] not in get_args(Verdict):
        raise SandboxError(f"the judge reported {said['verdict']!r}, which is no verdict")
    result = TestResult(said["verdict"], said["message"], said["seconds"])
    return await _explained(trial, result) if result.verdict == "crashed" else result


async def _explained(trial: _Trial, crashed: TestResult) -> TestResult:
    """Say why the program's process has ended, as the kernel tells it."""
    done, _ = await asyncio.wait([trial.program], timeout=_DEATH_S)
    if not done:
        return replace(crashed, message="the program hung up on its judge")
    ended = trial.program.result()
    if ended.oom:
        return replace(crashed, verdict="oom", message="the program's memory went beyond its limit")
    if ended.signal == signal.SIGXCPU:
        return replace(crashed, verdict="timeout", message="the program used up its processor time")
    if ended.why == "disk":
        return replace(crashed, message=f"the program wrote more than {trial.limits.file_mb} MiB of files")
    how = f"by signal {ended.signal}" if ended.signal is not None else f"with exit code {ended.exit_code}"
    return replace(crashed, message=f"the program ended {how} before its test did")
