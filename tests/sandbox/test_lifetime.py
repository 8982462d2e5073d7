"""What was started ends: with the sandbox, with its caller, and with the process that opened it, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from reward_loop.config import SandboxConfig
from reward_loop.deadline import within
from reward_loop.errors import RewardTimeout, SandboxError
from reward_loop.sandbox.local import open_local_sandbox
from reward_loop.sandbox.verdict import Limits
from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.processes import becomes_true, descendants_of

ROOT = Path(__file__).resolve().parents[2]
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])
PATIENT = Limits(wall_s=60.0)
SLEEPER = "import os, time\nif os.fork() == 0:\n    os.setsid()\nopen('started', 'w').close()\nwhile True: time.sleep(1)"

DRIVER = """
import asyncio, sys
from reward_loop.config import SandboxConfig
from reward_loop.sandbox.local import open_local_sandbox

async def main():
    sandbox = await open_local_sandbox(SandboxConfig(level=int(sys.argv[1]), min_level=0), 2)
    print(sandbox.pid, flush=True)
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(sandbox.run_program(sys.argv[2], b""))

asyncio.run(main())
"""


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def leftovers() -> set[Path]:
    groups = {path for root in ("memory", "pids", ".") for path in Path(f"/sys/fs/cgroup/{root}").glob("**/reward-loop-*")}
    return {*Path("/tmp").glob("reward-loop-sandbox-*"), *groups}


@LEVELS
async def test_nothing_is_left_after_the_driver_was_killed(level: int, open_sandbox: OpenSandbox) -> None:
    await open_sandbox(level)  # skips where the machine lacks the level
    command = [sys.executable, "-c", DRIVER, str(level), SLEEPER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as driver:  # noqa: ASYNC220  # to be killed, not awaited
        assert driver.stdout is not None
        nursery = int(await asyncio.to_thread(driver.stdout.readline))
        assert await becomes_true(lambda: len(descendants_of(nursery)) >= 4)
        started = descendants_of(nursery)
        driver.send_signal(signal.SIGKILL)
    assert await becomes_true(lambda: not any(map(exists, {nursery, *started})))
    assert not [path for path in leftovers() if str(nursery) in path.name]


@LEVELS
async def test_a_nursery_that_died_is_our_failure_and_is_replaced(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    nursery = sandbox.pid
    assert nursery is not None
    running = asyncio.ensure_future(sandbox.run_program(SLEEPER, b"", PATIENT))
    assert await becomes_true(lambda: len(descendants_of(nursery)) >= 2)
    started = descendants_of(nursery)
    os.kill(nursery, signal.SIGKILL)
    with pytest.raises(SandboxError, match="ended unexpectedly, and they with it"):
        await running
    assert await becomes_true(lambda: not any(map(exists, {nursery, *started})))
    assert await becomes_true(lambda: not [path for path in leftovers() if str(nursery) in path.name])
    run = await sandbox.run_program("print(1)", b"", PATIENT)
    assert run.stdout == b"1\n"
    assert sandbox.pid != nursery
    tests = await sandbox.run_tests("def f(): return 1", ["assert f() == 1"], limits=PATIENT)
    assert [test.verdict for test in tests] == ["passed"]


@LEVELS
async def test_a_program_whose_caller_gives_up_is_killed_and_frees_its_place(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level, places=1)
    with pytest.raises(RewardTimeout):
        await within(sandbox.run_program(SLEEPER, b"", PATIENT), 0.5)
    with pytest.raises(RewardTimeout):
        await within(sandbox.run_tests("def f():\n    while True: pass", ["f()"], limits=PATIENT), 0.5)
    assert (await sandbox.run_program("print(1)", b"", PATIENT)).stdout == b"1\n"
    assert await becomes_true(lambda: sandbox.pid is not None and descendants_of(sandbox.pid) == set())


async def test_waiting_for_a_place_does_not_count(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(0, places=1)
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(within(sandbox.run_program("import time; time.sleep(0.4)", b"", PATIENT), 1.3)) for _ in range(4)
        ]
    assert {run.result().ended for run in runs} == {"exited"}


@LEVELS
async def test_closing_ends_what_runs_and_removes_what_was_made(level: int, open_sandbox: OpenSandbox) -> None:
    before = leftovers()
    sandbox = await open_sandbox(level)
    nursery = sandbox.pid
    assert nursery is not None
    task = asyncio.ensure_future(sandbox.run_program(SLEEPER, b"", PATIENT))
    assert await becomes_true(lambda: len(descendants_of(nursery)) >= 2)
    started = descendants_of(nursery)
    await sandbox.close()
    with pytest.raises(SandboxError, match="closed"):
        await task
    assert not any(map(exists, {nursery, *started}))
    assert leftovers() <= before
    with pytest.raises(SandboxError, match="the sandbox is closed; open another one"):
        await sandbox.run_program("", b"")


def test_it_works_on_uvloop() -> None:
    async def run() -> tuple[bytes, list[str]]:
        sandbox = await open_local_sandbox(SandboxConfig(min_level=0), 2)
        try:
            program = await sandbox.run_program("print(input())", b"hello\n", PATIENT)
            tests = await sandbox.run_tests("def f(): return 1", ["assert f() == 1"], limits=PATIENT)
            return program.stdout, [test.verdict for test in tests]
        finally:
            await sandbox.close()

    assert uvloop.run(run()) == (b"hello\n", ["passed"])


async def test_many_programs_at_once_queue_for_the_places(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(1, places=3)
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(sandbox.run_program(f"print({n})", b"", PATIENT)) for n in range(60)]
    assert [run.result().stdout for run in runs] == [b"%d\n" % n for n in range(60)]
