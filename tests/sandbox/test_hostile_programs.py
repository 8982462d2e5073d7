"""Programs that attack: each ends with the right verdict, leaves nothing behind, and the sandbox goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from reward_loop.sandbox.local import LocalSandbox
from reward_loop.sandbox.verdict import Limits, ProgramRun
from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.processes import becomes_true, descendants_of

QUICK = Limits(wall_s=0.7)
PATIENT = Limits(wall_s=30.0)
# Level 3 starts an interpreter per program, and shares what confines it with level 1: it gets the attacks that test the rest.
ALL = pytest.mark.parametrize("level", [0, 1, 2, 3])
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])
CONFINED = pytest.mark.parametrize("level", [1, 2])
CONFINED_OR_WRAPPED = pytest.mark.parametrize("level", [1, 2, 3])


async def attack(sandbox: LocalSandbox, source: str, stdin: bytes = b"", limits: Limits = PATIENT) -> ProgramRun:
    """Run a hostile program; afterwards only the nursery is there, and the next program runs."""
    run = await sandbox.run_program(source, stdin, limits)
    assert await becomes_true(lambda: children_of_the_nursery(sandbox) == set())
    after = await sandbox.run_program("print(6 * 7)", b"", Limits(wall_s=30.0))
    assert (after.ended, after.stdout) == ("exited", b"42\n")
    return run


def outside() -> tuple[list[Path], bytes]:
    """What a program might have changed."""
    names = [path for folder in ("/etc", "/usr", "/dev/shm", "/var/tmp") for path in sorted(Path(folder).glob("*reward-loop*"))]
    return names, Path("/etc/passwd").read_bytes()


def children_of_the_nursery(sandbox: LocalSandbox) -> set[int]:
    assert sandbox.pid is not None
    return descendants_of(sandbox.pid)


@CONFINED_OR_WRAPPED
async def test_a_fork_bomb_is_bounded_and_swept_away(level: int, open_sandbox: OpenSandbox) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert (await attack(await open_sandbox(level), bomb, limits=QUICK)).ended in ("timeout", "crashed")


@CONFINED
async def test_a_program_gets_no_more_processes_than_its_limit(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import os, time
started = 0
try:
    for _ in range(50):
        if os.fork() == 0:
            time.sleep(60)
        started += 1
except OSError:
    pass
print(started)
"""
    run = await attack(await open_sandbox(level), source, limits=Limits(wall_s=10.0, processes=16))
    assert run.ended == "exited"
    assert 8 <= int(run.stdout) <= 16


@ALL
async def test_a_daemon_that_outlives_its_parent_is_gone_afterwards(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(1)
    os._exit(0)
os.wait()
print("left one behind")
"""
    run = await attack(await open_sandbox(level), source, limits=Limits(wall_s=10.0))
    assert (run.ended, run.stdout) == ("exited", b"left one behind\n")
    assert run.seconds < 5


@LEVELS
async def test_a_process_that_keeps_the_pipe_open_holds_no_place(level: int, open_sandbox: OpenSandbox) -> None:
    source = "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('done', flush=True)"
    run = await attack(await open_sandbox(level, places=1), source, limits=Limits(wall_s=30.0))
    assert (run.ended, run.stdout) == ("exited", b"done\n")
    assert run.seconds < 15


@LEVELS
async def test_four_gigabytes_are_not_to_be_had(level: int, open_sandbox: OpenSandbox) -> None:
    assert (await attack(await open_sandbox(level), "b'x' * (4 << 30)", limits=Limits(wall_s=20.0))).ended == "oom"


@pytest.mark.parametrize("level", [2])
async def test_processes_that_share_out_their_greed_are_counted_together(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        hoard = bytearray(100 << 20)
        time.sleep(60)
os.wait()
"""
    sandbox = await open_sandbox(level)
    if "cgroup" not in sandbox.description:
        pytest.skip("no writable control group on this machine")
    run = await attack(sandbox, source, limits=Limits(wall_s=20.0, memory_mb=256))
    assert run.ended == "oom"


@ALL
async def test_spinning_ends_at_the_deadline(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(await open_sandbox(level), "print('on', flush=True)\nwhile True: pass", limits=QUICK)
    assert (run.ended, run.stdout, run.exit_code) == ("timeout", b"on\n", None)


@LEVELS
async def test_sleeping_and_ignoring_every_signal_ends_at_the_deadline(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: time.sleep(1)
"""
    assert (await attack(await open_sandbox(level), source, limits=QUICK)).ended == "timeout"


@CONFINED
async def test_there_is_no_network(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import socket
for family in (socket.AF_INET, socket.AF_UNIX):
    try: socket.socket(family)
    except OSError as error: print(error.errno)
"""
    assert (await attack(await open_sandbox(level), source)).stdout == b"1\n1\n"


@CONFINED_OR_WRAPPED
async def test_nothing_is_written_outside_its_directory(level: int, open_sandbox: OpenSandbox) -> None:
    before = outside()
    source = """
import os
folders = ("/etc", "/usr", "/dev/shm/..", "/var/tmp")
for path in ("/etc/passwd", "/proc/1/comm", *(f"{folder}/reward-loop" for folder in folders)):
    try: open(path, "w").write("x")
    except OSError: print("no")
open("mine", "w").write("x")
print(os.listdir("."))
"""
    run = await attack(await open_sandbox(level), source)
    assert run.stdout.replace(b"no\n", b"") == b"['mine']\n"
    assert run.stdout.count(b"no\n") == 6
    assert outside() == before


@CONFINED_OR_WRAPPED
async def test_other_processes_can_be_neither_read_nor_signalled(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    source = f"""
import os, signal
victims = [os.getppid(), {os.getpid()}, {sandbox.pid}, 1]
for pid in victims:
    for name in ("environ", "mem", "fd/3", "maps"):
        try:
            if open(f"/proc/{{pid}}/{{name}}", "rb").read(10): print("read", pid, name)
        except OSError: pass
    try:
        if pid: os.kill(pid, signal.SIGKILL)
    except OSError: pass
print("alive")
"""
    run = await attack(sandbox, source)
    assert run.stdout == b"alive\n"


@CONFINED
async def test_killing_everything_kills_only_itself(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(await open_sandbox(level), "import os, signal\nos.kill(-1, signal.SIGKILL)\nprint('still here')")
    assert run.stdout in (b"", b"still here\n")


@ALL
async def test_the_environment_and_the_descriptors_are_clean(
    level: int, open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = """
import os
found = []
for number in range(3, 256):
    try: os.fstat(number); found.append(number)
    except OSError: pass
print(sorted(os.environ), found)
"""
    run = await attack(await open_sandbox(level), source)
    assert run.stdout == b"['HOME', 'LANG', 'PATH', 'TMPDIR'] []\n"


@ALL
async def test_the_disk_can_not_be_filled(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import itertools
for number in itertools.count():
    with open(f"file-{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
    run = await attack(await open_sandbox(level), source, limits=Limits(wall_s=20.0, file_mb=8))
    full_or_killed = run.ended == "crashed" or (run.exit_code == 1 and b"No space left" in run.stderr)
    assert full_or_killed


@LEVELS
async def test_one_file_is_bounded(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(await open_sandbox(level), "open('f', 'wb').write(bytes(9 << 20))", limits=Limits(wall_s=10.0, file_mb=8))
    assert run.exit_code == 1
    assert b"too large" in run.stderr or b"No space left" in run.stderr


@LEVELS
async def test_a_maze_of_directories_is_removed(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import os
for _ in range(1100):
    os.mkdir("d"); os.symlink("/etc", "link"); os.chmod("d", 0o700); os.chdir("d")
os.chmod(".", 0)
print("built")
"""
    sandbox, before = await open_sandbox(level), outside()
    assert (await attack(sandbox, source, limits=Limits(wall_s=20.0))).stdout == b"built\n"
    assert outside() == before


@LEVELS
async def test_endless_output_is_cut_off(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(
        await open_sandbox(level), "while True: print('x' * 1000)", limits=Limits(wall_s=10.0, output_bytes=10_000)
    )
    assert run.truncated
    assert len(run.stdout) == 10_000


@LEVELS
async def test_printing_a_little_too_much_is_no_failure(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(await open_sandbox(level), "print('x' * 30_000)", limits=Limits(wall_s=10.0, output_bytes=10_000))
    assert (run.ended, run.exit_code, run.truncated, run.stdout) == ("exited", 0, True, b"x" * 10_000)


@LEVELS
async def test_deep_recursion_is_an_exception_or_a_crash(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    run = await attack(sandbox, "def f(): f()\nf()")
    assert run.exit_code == 1
    assert run.stderr.rstrip().endswith(b"RecursionError: maximum recursion depth exceeded")


@ALL
async def test_a_program_that_signals_itself_crashed(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    for number in ("SIGKILL", "SIGSEGV", "SIGABRT"):
        run = await attack(sandbox, f"import os, signal\nos.kill(os.getpid(), signal.{number})")
        assert (run.ended, run.exit_code) == ("crashed", None)


@ALL
async def test_exit_codes_are_reported(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    for end, code in (("os._exit(7)", 7), ("sys.exit(3)", 3), ("sys.exit('words')", 1), ("exit()", 0), ("1/0", 1)):
        run = await sandbox.run_program(f"import os, sys\n{end}", b"", Limits(wall_s=20.0))
        assert (run.ended, run.exit_code) == ("exited", code)


@CONFINED
async def test_limits_can_not_be_raised_nor_privileges_regained(level: int, open_sandbox: OpenSandbox) -> None:
    source = """
import ctypes, os, resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    try: resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)); print("raised", kind)
    except (OSError, ValueError): pass
def device(): os.mknod("dev", 0o20666, os.makedev(1, 1))
for call in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("."), device):
    try: call(); print("regained")
    except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.prctl(1, 0, 0, 0, 0))
print(libc.ptrace(16, 1, 0, 0))
"""
    assert (await attack(await open_sandbox(level), source)).stdout == b"-1 -1 -1\n-1\n"


@LEVELS
async def test_closing_every_descriptor_hurts_nobody(level: int, open_sandbox: OpenSandbox) -> None:
    run = await attack(await open_sandbox(level), "import os\nos.closerange(0, 256)")
    assert (run.ended, run.stdout) == ("exited", b"")


@pytest.mark.parametrize("level", [1])
async def test_two_programs_at_once_can_not_touch_each_other(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    killer = """
import os
for pid in range(2, 70000):
    try: pid == os.getpid() or os.kill(pid, 9)
    except OSError: pass
"""
    async with asyncio.TaskGroup() as group:
        patient = group.create_task(
            sandbox.run_program("import time; time.sleep(0.5); print('unhurt')", b"", Limits(wall_s=20.0))
        )
        group.create_task(sandbox.run_program(killer, b"", Limits(wall_s=20.0)))
    assert patient.result().stdout == b"unhurt\n"
