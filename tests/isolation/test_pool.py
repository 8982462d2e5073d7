"""Real processes: what they compute comes back, and what hangs or crashes in one costs one sample."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.config import GraderConfig
from reward_loop.deadline import within
from reward_loop.errors import ConfigError, RewardFunctionError, RewardTimeout, Unscorable, WorkerDied
from reward_loop.functions.custom import load_function
from reward_loop.isolation.pool import GraderPool, processes_for
from reward_loop.outcome import Outcome
from tests.pipe import Pipe
from tests.processes import ROOT, parent_of, wait_until_gone

TIMEOUT_S = 0.3
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

GRADER = """
import ctypes, os, re, signal, threading
from reward_loop.errors import Unscorable

class Verdict:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value

class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__("two arguments")

def interrupted(*_):
    raise InterruptedError("alarm")

def compute_score(solution_str, threshold=None):
    match solution_str:
        case "raise": raise ValueError("boom")
        case "unpicklable error": raise Unpicklable(1, 2)
        case "exit": raise SystemExit(3)
        case "interrupt": raise KeyboardInterrupt
        case "unscorable": raise Unscorable("no answer")
        case "timeout": raise TimeoutError("the judge did not answer")
        case "unpicklable": return threading.Lock()
        case "crash": os._exit(7)
        case "segfault": ctypes.string_at(0)
        case "hang":
            while True: pass
        case "alarm":
            signal.signal(signal.SIGALRM, interrupted)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            while True: pass
        case "process": return os.getpid()
        case "regex": return re.match("(a*)*b", "a" * 100)
        case "memory": return len(bytearray(2 << 30))
        case "close everything":
            os.closerange(3, 1000)
            while True: pass
        case "scribble":
            for descriptor in range(3, 20):
                try: os.write(descriptor, bytes([255] * 100))
                except OSError: pass
            while True: pass
        case "verdict": return Verdict(1.0)
        case _: return [solution_str, threshold]
"""


def pool(function: Callable[..., Any], constants: dict[str, Any] | None = None, **settings: Any) -> GraderPool:
    defaults: dict[str, Any] = {"processes": 1, "max_processes": 16, "timeout_s": None, "memory_mb": 1024}
    return GraderPool(function, constants or {}, **defaults | settings)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graders") / "grader.py"
    path.write_text(GRADER)
    return str(path)


@pytest.fixture(scope="module")
def graders(file: str) -> Iterator[GraderPool]:
    graders = pool(load_function(file, "compute_score"), {"threshold": 0.5}, processes=2, timeout_s=TIMEOUT_S)
    yield graders
    graders.close()


async def grade(graders: GraderPool, text: str) -> Any:
    return await graders.call({"solution_str": text})


async def test_the_function_runs_in_another_process_with_inputs_and_constants(graders: GraderPool) -> None:
    assert await grade(graders, "42") == ["42", 0.5]
    assert await grade(graders, "process") != os.getpid()


async def test_classes_of_the_users_file_come_back_as_themselves(graders: GraderPool, file: str) -> None:
    assert await grade(graders, "verdict") == load_function(file, "Verdict")(1.0)


async def test_a_closure_works_too() -> None:
    bonus = 2.0

    def compute_score(solution_str: str) -> float:
        return len(solution_str) + bonus

    graders = pool(compute_score)
    assert await grade(graders, "42") == 4.0
    graders.close()


@pytest.mark.parametrize(
    ("text", "problem", "source"),
    [
        ("raise", "ValueError: boom", 'raise ValueError("boom")'),
        ("unpicklable error", "Unpicklable: two arguments", "raise Unpicklable(1, 2)"),
        ("exit", "SystemExit: 3", "raise SystemExit(3)"),
        ("interrupt", "KeyboardInterrupt", "raise KeyboardInterrupt"),
    ],
)
async def test_an_exception_comes_back_with_its_text_file_and_line(
    graders: GraderPool, file: str, text: str, problem: str, source: str
) -> None:
    line = next(number for number, line in enumerate(GRADER.splitlines(), start=1) if source in line)
    with pytest.raises(RewardFunctionError) as caught:
        await grade(graders, text)
    assert str(caught.value) == f"{problem} ({file}:{line} in compute_score)"
    [traceback] = caught.value.__notes__
    assert f'File "{file}", line {line}, in compute_score' in traceback
    assert traceback.startswith("Traceback (most recent call last)")


@pytest.mark.parametrize(("text", "status"), [("raise", "error"), ("timeout", "timeout"), ("unscorable", "unscorable")])
async def test_a_sample_ends_as_it_would_in_this_process(graders: GraderPool, text: str, status: str) -> None:
    with pytest.raises(RewardFunctionError) as caught:
        await grade(graders, text)
    assert Outcome.from_error(caught.value, 0.0).status == status


async def test_an_unscorable_sample_keeps_its_reason(graders: GraderPool) -> None:
    with pytest.raises(Unscorable) as caught:
        await grade(graders, "unscorable")
    assert str(caught.value) == "no answer"


async def test_a_result_that_cannot_be_sent_back_is_an_error(graders: GraderPool) -> None:
    with pytest.raises(RewardFunctionError, match=r"cannot pickle '_thread\.lock' object"):
        await grade(graders, "unpicklable")


async def test_the_function_has_a_main_thread(graders: GraderPool) -> None:
    with pytest.raises(RewardFunctionError, match="InterruptedError: alarm"):
        await grade(graders, "alarm")


@pytest.mark.parametrize(("crash", "cause"), [("crash", "exit code 7"), ("segfault", "SIGSEGV")])
async def test_a_crash_costs_the_sample_that_caused_it(graders: GraderPool, crash: str, cause: str) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ("a", crash, "b", "c")), return_exceptions=True)
    assert [ended[0], *ended[2:]] == [["a", 0.5], ["b", 0.5], ["c", 0.5]]
    assert isinstance(ended[1], WorkerDied)
    assert cause in str(ended[1])
    assert await grade(graders, "d") == ["d", 0.5]


async def test_a_function_that_hangs_is_killed_and_the_others_go_on(graders: GraderPool) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ("hang", "hang", "a", "b")), return_exceptions=True)
    assert ended[2:] == [["a", 0.5], ["b", 0.5]]
    for error in ended[:2]:
        assert isinstance(error, RewardTimeout)
        assert str(error) == "not scored within 0.3 s (reward_model.timeout_s)"
    assert await grade(graders, "c") == ["c", 0.5]


async def test_waiting_for_a_process_does_not_count() -> None:
    """One process for three samples of most of a deadline each: the last one waits far longer than that."""

    def compute_score(solution_str: str) -> str:
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            pass
        return solution_str

    graders = pool(compute_score, timeout_s=1.0, max_processes=1)

    async def scored() -> list[Any]:
        return await asyncio.gather(*(grade(graders, text) for text in "abc"))

    assert await within(scored(), 1.0) == ["a", "b", "c"]
    graders.close()


async def test_hanging_samples_hold_up_no_other(file: str) -> None:
    """Six of them, two usual processes: each is given another process, or they would take three deadlines."""
    timeout_s = 2.0
    graders = pool(load_function(file, "compute_score"), processes=2, timeout_s=timeout_s)
    await graders.start()
    started = time.monotonic()
    texts = ["a"] * 50 + ["hang"] * 6 + ["b"] * 50
    ended = await asyncio.gather(*(grade(graders, text) for text in texts), return_exceptions=True)
    assert [type(error) for error in ended[50:56]] == [RewardTimeout] * 6
    assert ended[56:] == [["b", None]] * 50
    assert time.monotonic() - started < 2 * timeout_s
    graders.close()


async def test_a_function_that_sleeps_long_or_computes_long_keeps_its_deadline_to_itself(graders: GraderPool) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ["regex", "a"]), return_exceptions=True)
    assert isinstance(ended[0], RewardTimeout)  # no signal handler of Python's runs in the loop of a regular expression
    assert ended[1] == ["a", 0.5]


async def test_a_process_that_was_held_up_before_it_began_with_a_sample_still_scores_it(file: str) -> None:
    graders = pool(load_function(file, "compute_score"))
    held = [await grade(graders, "process") for _ in range(3)][-1]
    os.kill(held, signal.SIGSTOP)
    call = asyncio.create_task(grade(graders, "a"))
    assert await asyncio.wait_for(grade(graders, "b"), 10) == ["b", None]  # by another process, for this one looks stuck
    os.kill(held, signal.SIGCONT)
    assert await asyncio.wait_for(call, 10) == ["a", None]
    graders.close()


async def test_memory_beyond_the_bound_is_the_samples_error(graders: GraderPool) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ["memory", *"abcdef"]), return_exceptions=True)
    assert isinstance(ended[0], RewardFunctionError)
    assert "MemoryError" in str(ended[0])
    assert "reward_model.grader.memory_mb" in str(ended[0])
    assert ended[1:] == [[text, 0.5] for text in "abcdef"]


async def test_a_call_that_is_cancelled_frees_its_process() -> None:
    def compute_score(solution_str: str) -> str:
        while solution_str == "hang":
            pass
        return solution_str

    graders = pool(compute_score)
    assert await grade(graders, "warm") == "warm"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await grade(graders, "hang")
    assert await grade(graders, "a") == "a"
    graders.close()


async def test_inputs_that_cannot_be_sent_are_an_error_and_cost_nothing_else(graders: GraderPool) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        await graders.call({"solution_str": iter(x for x in "a")})
    assert await grade(graders, "a") == ["a", 0.5]


async def test_closing_kills_whatever_runs(tmp_path: Path) -> None:
    def compute_score(solution_str: str) -> None:
        Path(solution_str).write_text("running")
        while True:
            pass

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    graders = pool(compute_score)
    call = asyncio.create_task(grade(graders, str(pipe)))
    assert await asyncio.to_thread(pipe.read_text) == "running"
    graders.close()  # returns, which it would not if it waited for the function
    call.cancel()
    await asyncio.wait([call])


async def test_a_function_that_cannot_be_loaded_there_says_why(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text("def compute_score(solution_str): return 1.0\n")
    function = load_function(str(file), "compute_score")
    file.unlink()
    graders = pool(function)
    with pytest.raises(ConfigError, match=r"can't be loaded in another process: ConfigError: .*gone\.py: there is no such file"):
        await grade(graders, "a")
    graders.close()


@pytest.mark.parametrize("attack", ["close everything", "scribble"])
async def test_a_function_that_ruins_its_channel_costs_itself(file: str, attack: str) -> None:
    graders = pool(load_function(file, "compute_score"), timeout_s=20.0)
    ended = await asyncio.gather(*(grade(graders, text) for text in ["a", attack, "b"]), return_exceptions=True)
    assert [ended[0], ended[2]] == [["a", None], ["b", None]]
    assert isinstance(ended[1], WorkerDied)
    graders.close()


# -- nothing is left behind ------------------------------------------------------------------------------------------


def starts_others(solution_str: str) -> None:
    """Start a process, and a daemon in a session of its own whose parent ends; write their ids and this one's, and hang."""
    child = subprocess.Popen(["sleep", "1000"])
    daemon = subprocess.run(["setsid", "sh", "-c", "sleep 1001 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
    Path(solution_str).write_text(f"{os.getpid()} {child.pid} {int(daemon.stdout)}")
    while True:
        pass


async def test_what_a_killed_function_had_started_ends_with_it(pipe: Pipe) -> None:
    graders = pool(starts_others, timeout_s=1.0)
    call = asyncio.create_task(grade(graders, str(pipe.path)))
    pids = [int(pid) for pid in (await asyncio.to_thread(pipe.hear)).split()]
    assert len(pids) == 3
    with pytest.raises(RewardTimeout):
        await call
    await asyncio.to_thread(wait_until_gone, pids)
    graders.close()


DRIVER = """
import asyncio, sys
from reward_loop.isolation.pool import GraderPool
sys.path.insert(0, "tests/isolation")
from test_pool import pool, starts_others

async def main():
    await pool(starts_others).call({"solution_str": sys.argv[1]})

asyncio.run(main())
"""


async def test_kill_minus_nine_of_the_driver_leaves_nothing(pipe: Pipe) -> None:
    driver = await asyncio.create_subprocess_exec(sys.executable, "-c", DRIVER, str(pipe.path), cwd=ROOT, env=ENVIRONMENT)
    pids = [int(pid) for pid in (await asyncio.to_thread(pipe.hear)).split()]
    driver.kill()
    await driver.wait()
    await asyncio.to_thread(wait_until_gone, pids)


async def test_a_nursery_that_is_killed_is_replaced_and_loses_nothing(graders: GraderPool) -> None:
    grader = await grade(graders, "process")
    nursery = parent_of(grader)
    calls = [asyncio.create_task(grade(graders, text)) for text in "abcdefgh" * 20]
    os.kill(nursery, signal.SIGKILL)
    assert await asyncio.gather(*calls) == [[text, 0.5] for text in "abcdefgh" * 20]


def kills_its_nursery(solution_str: str) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    while True:
        pass


async def test_a_function_that_kills_the_nursery_again_and_again_is_given_up() -> None:
    graders = pool(kills_its_nursery)
    with pytest.raises(WorkerDied, match="died 3 times while this was scored"):
        await grade(graders, "a")
    graders.close()


# -- how it starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def compute_score(solution_str): return CONSTANT", None),
        ("import time, threading\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()", None),
        ("if OTHER_PROCESS: raise OSError('no licence')", "OSError: no licence"),
        ("if OTHER_PROCESS: os._exit(3)", "died of it"),
    ],
    ids=["plain", "starts a thread", "raises", "ends its process"],
)
async def test_a_file_is_loaded_once_for_all_processes(tmp_path: Path, source: str, problem: str | None) -> None:
    path = tmp_path / "grader.py"
    here = os.getpid()
    path.write_text(
        f"import os\nCONSTANT = 7\nOTHER_PROCESS = os.getpid() != {here}\n"
        f"def compute_score(solution_str): return CONSTANT\n{source}\n"
    )
    graders = pool(load_function(str(path), "compute_score"), processes=2)
    try:
        if problem is None:
            await graders.start()
            assert await asyncio.gather(*(grade(graders, text) for text in "abcd")) == [7] * 4
        else:
            for _ in range(2):
                with pytest.raises(ConfigError, match=problem):
                    await graders.start()
    finally:
        graders.close()


def test_a_main_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio\nfrom reward_loop.isolation.pool import GraderPool\nprint('main')\n"
        "class Answer:\n    def __init__(self, text): self.text = text\n"
        "def compute_score(answer): return Answer(answer.text + '!')\n"
        "async def main():\n"
        "    pool = GraderPool(compute_score, {}, processes=1, max_processes=1, timeout_s=None, memory_mb=1024)\n"
        "    print((await pool.call({'answer': Answer('a')})).text)\n"
        "    pool.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout.split() == ["main", "a!"]


def test_one_pool_may_be_used_from_one_event_loop_after_the_other(graders: GraderPool) -> None:
    for _ in range(2):
        assert asyncio.run(grade(graders, "a")) == ["a", 0.5]


def test_the_cores_are_shared_among_the_workers_of_a_node() -> None:
    cores = len(os.sched_getaffinity(0))
    assert processes_for(GraderConfig(), workers_on_node=1) == (cores, max(32, 4 * cores))
    assert processes_for(GraderConfig(), workers_on_node=10 * cores) == (1, 32)
    assert processes_for(GraderConfig(processes=3, max_processes=5), workers_on_node=10) == (3, 5)
