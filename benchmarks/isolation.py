"""What isolation costs, as ratios within one run: grader processes against threads, the sandbox against a bare subprocess.

python benchmarks/isolation.py [--rounds 5] [--only graders | places | trouble | sandbox]

- graders: a millisecond of Python, and a millisecond of hashing that lets other threads run, by `GraderPool` with a process per
           core, against a thread per core that does nothing but call the function
- places:  whole batches through `RewardLoopManager` with isolation inline, thread and process, for functions of 0 to 10 ms
- trouble: 1,000 samples of which 10 hang in C and 10 crash, with a deadline of 5 s and honest samples of 1 ms to 1 s
- sandbox: one program after the other at each level that this machine offers, and `run_tests`, against `subprocess.run` of the
           same interpreter on the same program
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import hashlib
import re
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.table import Table

from reward_loop import DataProto, RewardLoopManager, load_config
from reward_loop.config import SandboxConfig
from reward_loop.isolation.pool import GraderPool
from reward_loop.machine import usable_cores
from reward_loop.sandbox.local import open_local_sandbox
from reward_loop.sandbox.probe import probe

SAMPLES = 2000
PROGRAMS = 40
DEADLINE_S = 5.0
SLOWEST_S = 1.0

console = Console()


def spin(seconds: float) -> float:
    """Compute in Python for so long by this thread's own clock."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return 1.0


def python_1_ms(solution_str: str) -> float:
    """Hold the interpreter lock for a millisecond."""
    return spin(0.001)


_BLOCK = bytes(1_500_000)


def hashing_1_ms(solution_str: str) -> float:
    """Compute for about a millisecond without the interpreter lock."""
    return float(hashlib.sha256(_BLOCK).digest()[0])


def nothing(solution_str: str) -> float:
    """Return at once."""
    return 1.0


def python_100_us(solution_str: str) -> float:
    """Compute for 0.1 ms."""
    return spin(0.0001)


def python_10_ms(solution_str: str) -> float:
    """Compute for 10 ms."""
    return spin(0.01)


def sleep_10_ms(solution_str: str) -> float:
    """Block for 10 ms."""
    time.sleep(0.01)
    return 1.0


def troublesome(solution_str: str) -> float:
    """Hang, crash, take a second or take a millisecond."""
    if solution_str == "hang":
        re.match("(a*)*b", "a" * 100)
    if solution_str == "crash":
        ctypes.string_at(0)
    if solution_str == "slow":
        time.sleep(SLOWEST_S)
    return spin(0.001)


def table(title: str, *columns: str) -> Table:
    """Return an empty table whose first column is text and whose others are numbers."""
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left")
    return made


def batch(texts: list[str]) -> DataProto:
    """Return rollouts as text."""
    return DataProto.from_dict(non_tensors={"solution_str": texts, "reward_model": [{"ground_truth": ""}] * len(texts)})


async def in_processes(function: Callable[..., Any], rounds: int) -> list[float]:
    """Return the seconds that each round took in a process per core."""
    cores = usable_cores()
    pool = GraderPool(function, {}, processes=cores, max_processes=cores, timeout_s=60.0, memory_mb=1024)
    await asyncio.gather(*(pool.call({"solution_str": ""}) for _ in range(100)))
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        await asyncio.gather(*(pool.call({"solution_str": "an answer " * 50}) for _ in range(SAMPLES)))
        seconds.append(time.perf_counter() - started)
    pool.close()
    return seconds


def in_threads(function: Callable[..., Any], rounds: int) -> list[float]:
    """Return the seconds that each round took in a thread per core."""
    cores = usable_cores()
    seconds = []
    with ThreadPoolExecutor(cores) as threads:
        for _ in range(rounds):
            started = time.perf_counter()
            list(threads.map(lambda _: [function("an answer " * 50) for _ in range(SAMPLES // cores)], range(cores)))
            seconds.append(time.perf_counter() - started)
    return seconds


def measure_graders(rounds: int) -> bool:
    """Compare processes with threads; whether the target is met."""
    shown = table(f"{SAMPLES} samples, {usable_cores()} cores", "function", "threads", "processes", "throughput ratio")
    met = True
    for function in (python_1_ms, hashing_1_ms):
        threads: list[float] = []
        processes: list[float] = []
        for _ in range(rounds):  # in turns, so that what else the machine does hits both
            threads += in_threads(function, 1)
            processes += asyncio.run(in_processes(function, 1))
        each = [statistics.median(seconds) / SAMPLES * 1e6 for seconds in (threads, processes)]
        ratio = each[0] / each[1]
        met &= ratio >= 0.5
        shown.add_row(function.__name__, f"{each[0]:.0f} us", f"{each[1]:.0f} us", f"{ratio:.2f} (target 0.5)")
    console.print(shown)
    return met


def measure_places(rounds: int) -> bool:
    """Show what a sample costs by place and function."""
    places = ("inline", "thread", "process")
    shown = table("microseconds per sample, through RewardLoopManager", "function", *places, "process / thread")
    for function, samples in (
        (nothing, 10_000),
        (python_100_us, 5000),
        (python_1_ms, 1000),
        (python_10_ms, 200),
        (sleep_10_ms, 500),
    ):
        each = {place: place_costs(function, place, samples, rounds) for place in places}
        figures = [f"{each[place]:,.0f}" for place in places]
        shown.add_row(function.__name__, *figures, f"{each['process'] / each['thread']:.2f}")
    console.print(shown)
    return True


def place_costs(function: Callable[..., Any], place: str, samples: int, rounds: int) -> float:
    """Return the median microseconds per sample in one place."""
    data = batch(["an answer " * 50] * samples)
    seconds = []
    with RewardLoopManager(load_config({"reward_model": {"isolation": place}}), compute_score=function) as manager:
        manager.compute_rm_score(data[:100])
        for _ in range(rounds):
            started = time.perf_counter()
            manager.compute_rm_score(data)
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) / samples * 1e6


def measure_trouble(rounds: int) -> bool:
    """Show what samples that hang and crash cost the others; whether the target is met."""
    texts = ["a millisecond"] * 1000
    for place, kind in ((7, "hang"), (13, "crash"), (29, "slow")):
        texts[place::100] = [kind] * 10
    expected = ["timeout" if text == "hang" else "error" if text == "crash" else "ok" for text in texts]
    settings = {"isolation": "process", "timeout_s": DEADLINE_S, "on_error": "mask"}
    shown = table(f"1,000 samples, 10 hang, 10 crash, deadline {DEADLINE_S:.0f} s, slowest {SLOWEST_S:.0f} s", "", "seconds")
    with RewardLoopManager(load_config({"reward_model": settings}), compute_score=troublesome) as manager:
        clean = batch(["a millisecond"] * 1000)
        limit = DEADLINE_S + SLOWEST_S
        mixed = f"the batch (target {limit:.0f})"
        took: dict[str, list[float]] = {"a clean batch before": [], mixed: [], "a clean one after": []}
        for _ in range(rounds):
            for name, seconds in took.items():
                data = batch(texts) if name == mixed else clean
                started = time.perf_counter()
                result = manager.compute_rm_score(data)
                seconds.append(time.perf_counter() - started)
                if name == mixed and result.non_tensor_batch["reward_status"].tolist() != expected:
                    raise RuntimeError("a sample ended otherwise than it should")
    for name, seconds in took.items():
        shown.add_row(name, f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})")
    console.print(shown)
    return statistics.median(took[mixed]) <= limit


PROGRAM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
FUNCTION = "def total(numbers):\n    return sum(numbers)\n"


async def measure_sandbox(rounds: int) -> bool:
    """Compare one program at a time in the sandbox with a bare subprocess; whether the target is met."""
    found = probe(SandboxConfig(min_level=0))
    python = str(found.interpreter.path)
    shown = table(f"milliseconds per program, one after the other, {python}", "", "median", "ratio to bare")

    async def bare() -> None:
        run = [python, "-I", "-c", PROGRAM]
        await asyncio.to_thread(subprocess.run, run, input=b"1 2 3", stdout=subprocess.PIPE, check=True)

    baseline = statistics.median(await timed(bare, rounds)) * 1e3
    shown.add_row("bare subprocess", f"{baseline:.1f}", "1.00")
    met = True
    for level in found.levels:
        sandbox = await open_local_sandbox(SandboxConfig(min_level=level, level=level), 1)

        async def program(sandbox: Any = sandbox) -> None:
            run = await sandbox.run_program(PROGRAM, b"1 2 3")
            if run.stdout != b"6\n":
                raise RuntimeError(f"the program printed {run.stdout!r}")

        async def tests(sandbox: Any = sandbox) -> None:
            results = await sandbox.run_tests(FUNCTION, ["assert total([1, 2, 3]) == 6"])
            if [result.verdict for result in results] != ["passed"]:
                raise RuntimeError(f"the test ended as {results}")

        for name, function in (("run_program", program), ("run_tests", tests)):
            took = statistics.median(await timed(function, rounds)) * 1e3
            ratio = took / baseline
            met &= level == 3 or ratio <= 2.0
            shown.add_row(f"level {level}: {name}", f"{took:.1f}", f"{ratio:.2f}" + (" (target 2)" if level < 3 else ""))
        await sandbox.close()
    console.print(shown)
    return met


async def timed(function: Callable[[], Awaitable[None]], rounds: int) -> list[float]:
    """Return the seconds of each of `rounds` times PROGRAMS calls, after one to warm up."""
    await function()
    seconds = []
    for _ in range(rounds * PROGRAMS):
        started = time.perf_counter()
        await function()
        seconds.append(time.perf_counter() - started)
    return seconds


def main() -> int:
    """Run the benchmark; the exit code says whether the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parts: dict[str, Callable[[int], bool]] = {
        "graders": measure_graders,
        "places": measure_places,
        "trouble": measure_trouble,
        "sandbox": lambda rounds: asyncio.run(measure_sandbox(rounds)),
    }
    parser.add_argument("--only", choices=parts, action="append")
    arguments = parser.parse_args()
    met = [parts[name](arguments.rounds) for name in arguments.only or parts]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
