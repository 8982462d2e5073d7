"""The keeper: whoever dies - driver, server or a keeper - nothing of the server is left."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reward_loop.serving import process_tree
from reward_loop.serving.engine_process import Ended, EngineProcess, new_run_dir
from reward_loop.serving.spec import ServerSpec
from tests.processes import ROOT, parent_of, wait_until_gone
from tests.serving.fake_servers import fake_command
from tests.serving.polling import until

SPEC = ServerSpec("m", "m")
SHARED_MEMORY = Path("/dev/shm")


async def said(log: Path, word: str) -> list[str]:
    """Wait for a line of the log that begins with `word`, and return its other words."""

    def lines() -> list[list[str]]:
        found = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [words for words in found if words[:1] == [word]]

    await until(lambda: bool(lines()))
    return lines()[0][1:]


async def start(
    log: Path, *modes: str, grace_s: float = 10.0, memory_mb: int | None = None, heir_wait_s: float = 0.0
) -> EngineProcess:
    run_dir, update_dir = new_run_dir(), log.with_name("updates")
    update_dir.mkdir(exist_ok=True)
    command = fake_command("child", *modes)(SPEC, 0, run_dir, str(update_dir))
    return await EngineProcess.start(
        command,
        log=log,
        run_dir=run_dir,
        update_dir=str(update_dir),
        heir_wait_s=heir_wait_s,
        grace_s=grace_s,
        memory_mb=memory_mb,
    )


def keepers_of(engine: EngineProcess) -> tuple[int, int]:
    """The outer and the inner keeper."""
    inner = parent_of(engine.pid)
    return parent_of(inner), inner


async def ended(engine: EngineProcess) -> Ended:
    async with asyncio.timeout(30):
        return await engine.ended()


async def check_nothing_is_left(log: Path, *pids: int) -> None:
    child, segment = await said(log, "child")
    await asyncio.to_thread(wait_until_gone, [*pids, int(child)])
    assert not (SHARED_MEMORY / segment).exists()


async def test_a_stop_ends_the_server_its_children_and_their_shared_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = await start(log)
    await said(log, "child")
    pids = (engine.pid, *keepers_of(engine))
    assert await engine.stop() == Ended("stop", -signal.SIGTERM)
    assert not engine.running
    await check_nothing_is_left(log, *pids)


async def test_a_server_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = await start(log, "deaf", grace_s=0.2)
    await said(log, "child")
    pid = engine.pid
    assert await engine.stop() == Ended("stop", None)
    await check_nothing_is_left(log, pid)


async def test_a_server_that_is_killed_takes_its_children_along_and_says_by_what(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = await start(log)
    await said(log, "child")
    os.kill(engine.pid, signal.SIGKILL)
    end = await ended(engine)
    assert (end.reason, end.describe(None)) == ("server", "was killed by signal 9")
    await check_nothing_is_left(log)


@pytest.mark.parametrize("which", [0, 1], ids=["outer", "inner"])
async def test_a_keeper_that_is_killed_leaves_nothing(tmp_path: Path, which: int) -> None:
    log = tmp_path / "log"
    engine = await start(log)
    await said(log, "child")
    keepers = keepers_of(engine)
    os.kill(keepers[which], signal.SIGKILL)
    assert (await ended(engine)).reason == "keeper"
    await check_nothing_is_left(log, engine.pid, *keepers)
    assert log.with_name("updates").exists(), "the next run needs them"


async def test_a_server_that_takes_too_much_memory_is_killed_and_the_reason_is_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = await start(log, "grows", memory_mb=300)
    end = await ended(engine)
    assert end.reason == "memory"
    assert "server.memory_mb=300" in end.describe(300)
    await check_nothing_is_left(log, engine.pid)


async def test_the_bound_is_not_met_by_a_server_that_stays_below_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = await start(log, "grows", memory_mb=4000)
    await said(log, "grown")
    assert process_tree.proportional_mb([engine.pid]) > 400
    assert process_tree.resident_mb([engine.pid]) > 400
    assert (await engine.stop()).reason == "stop"


DRIVER = """
import asyncio, os, sys
from pathlib import Path
from tests.serving.test_keeper import start, keepers_of

async def main():
    engine = await start(Path(sys.argv[1]), heir_wait_s=float(sys.argv[2]))
    # A child of the driver that holds its descriptors open, as those of multiprocessing do.
    if "forks" in sys.argv and os.fork() == 0:
        print("forked", os.getpid(), flush=True)
        import time; time.sleep(3600)
    print("server", engine.pid, *keepers_of(engine), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def drive(log: Path, out: Path, *how: str, heir_wait_s: float = 0.0) -> subprocess.Popen[bytes]:
    with out.open("w") as output:
        return subprocess.Popen([sys.executable, "-c", DRIVER, str(log), str(heir_wait_s), *how], stdout=output, cwd=ROOT)


async def test_a_driver_that_is_killed_leaves_nothing_neither_processes_nor_updates(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    driver = drive(log, out)
    pids = [int(pid) for pid in await said(out, "server")]
    await said(log, "child")
    assert log.with_name("updates").exists()
    driver.kill()
    driver.wait()
    await check_nothing_is_left(log, *pids)
    await until(lambda: not log.with_name("updates").exists())


@pytest.mark.parametrize("heir", [True, False])
async def test_updates_may_wait_for_the_next_driver(tmp_path: Path, heir: bool) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    driver = drive(log, out, heir_wait_s=30.0 if heir else 1.0)
    pids = [int(pid) for pid in await said(out, "server")]
    await said(log, "child")
    driver.kill()
    driver.wait()
    await asyncio.to_thread(wait_until_gone, pids[:1])
    assert log.with_name("updates").exists()
    if heir:
        engine = await start(log)
        await asyncio.to_thread(wait_until_gone, pids)
        assert log.with_name("updates").exists(), "they have an owner again"
        await engine.stop()
    else:
        await asyncio.to_thread(wait_until_gone, pids)
        assert not log.with_name("updates").exists()


async def test_a_driver_that_is_killed_leaves_nothing_even_with_a_child_that_holds_its_pipes(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    driver = drive(log, out, "forks")
    pids = [int(pid) for pid in await said(out, "server")]
    [forked] = [int(pid) for pid in await said(out, "forked")]
    try:
        await said(log, "child")
        driver.kill()
        driver.wait()
        await check_nothing_is_left(log, *pids)
        await until(lambda: not log.with_name("updates").exists())
    finally:
        os.kill(forked, signal.SIGKILL)


def test_shared_memory_that_somebody_holds_is_not_removed(tmp_path: Path) -> None:
    path = SHARED_MEMORY / f"reward-loop-{os.getpid()}-{tmp_path.name}"
    path.write_bytes(b"0" * 4096)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert str(path) in process_tree.shared_memory([os.getpid()])
        assert process_tree.remove_shared_memory({str(path)}) == []
        assert path.exists()
    assert process_tree.remove_shared_memory({str(path)}) == [str(path)]
    assert not path.exists()


async def test_a_command_that_can_not_run_ends_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_dir = new_run_dir()
    engine = await EngineProcess.start(fake_command("ill")(SPEC, 0, run_dir, ""), log=log, run_dir=run_dir)
    assert await ended(engine) == Ended("server", 1)
    assert "MemoryError" in log.read_text()
    await asyncio.to_thread(check_is_gone, Path(run_dir))


def check_is_gone(path: Path) -> None:
    assert not path.exists()
