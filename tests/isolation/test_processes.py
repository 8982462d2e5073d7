"""Real processes: what they compute comes back, and what hangs or crashes in one costs one sample."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, RewardFunctionError, RewardTimeout, Unscorable, WorkerDied
from reward_loop.functions.custom import load_function
from reward_loop.isolation.processes import GraderProcesses
from reward_loop.outcome import Outcome

TIMEOUT_S = 0.3

GRADER = """
import ctypes, os, signal, threading
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
        case "verdict": return Verdict(1.0)
        case _: return [solution_str, threshold]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graders") / "grader.py"
    path.write_text(GRADER)
    return str(path)


@pytest.fixture(scope="module")
def graders(file: str) -> Iterator[GraderProcesses]:
    graders = GraderProcesses(load_function(file, "compute_score"), {"threshold": 0.5}, 2, TIMEOUT_S)
    yield graders
    graders.close()


async def grade(graders: GraderProcesses, text: str) -> Any:
    return await graders.call({"solution_str": text})


async def test_the_function_runs_in_another_process_with_inputs_and_constants(graders: GraderProcesses) -> None:
    assert await grade(graders, "42") == ["42", 0.5]
    assert await grade(graders, "process") != os.getpid()


async def test_classes_of_the_users_file_come_back_as_themselves(graders: GraderProcesses, file: str) -> None:
    assert await grade(graders, "verdict") == load_function(file, "Verdict")(1.0)


async def test_a_closure_works_too() -> None:
    bonus = 2.0

    def compute_score(solution_str: str) -> float:
        return len(solution_str) + bonus

    graders = GraderProcesses(compute_score, {}, 1, None)
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
    graders: GraderProcesses, file: str, text: str, problem: str, source: str
) -> None:
    line = next(number for number, line in enumerate(GRADER.splitlines(), start=1) if source in line)
    with pytest.raises(RewardFunctionError) as caught:
        await grade(graders, text)
    assert str(caught.value) == f"{problem} ({file}:{line} in compute_score)"


@pytest.mark.parametrize(("text", "status"), [("raise", "error"), ("timeout", "timeout"), ("unscorable", "unscorable")])
async def test_a_sample_ends_as_it_would_in_this_process(graders: GraderProcesses, text: str, status: str) -> None:
    with pytest.raises(RewardFunctionError) as caught:
        await grade(graders, text)
    assert Outcome.from_error(caught.value, 0.0).status == status


async def test_an_unscorable_sample_keeps_its_reason(graders: GraderProcesses) -> None:
    with pytest.raises(Unscorable, match=r"^no answer$"):
        await grade(graders, "unscorable")


async def test_a_result_that_cannot_be_sent_back_is_an_error(graders: GraderProcesses) -> None:
    with pytest.raises(RewardFunctionError, match=r"cannot pickle '_thread\.lock' object"):
        await grade(graders, "unpicklable")


async def test_the_function_has_a_main_thread(graders: GraderProcesses) -> None:
    with pytest.raises(RewardFunctionError, match="InterruptedError: alarm"):
        await grade(graders, "alarm")


@pytest.mark.parametrize(("crash", "code"), [("crash", 7), ("segfault", -11)])
async def test_a_crash_costs_the_sample_that_caused_it(graders: GraderProcesses, crash: str, code: int) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ("a", crash, "b", "c")), return_exceptions=True)
    assert [ended[0], *ended[2:]] == [["a", 0.5], ["b", 0.5], ["c", 0.5]]
    assert isinstance(ended[1], WorkerDied)
    assert f"exit code {code}" in str(ended[1])
    assert await grade(graders, "d") == ["d", 0.5]


async def test_a_function_that_hangs_is_killed_and_the_others_go_on(graders: GraderProcesses) -> None:
    ended = await asyncio.gather(*(grade(graders, text) for text in ("hang", "hang", "a", "b")), return_exceptions=True)
    assert ended[2:] == [["a", 0.5], ["b", 0.5]]
    for error in ended[:2]:
        assert isinstance(error, RewardTimeout)
        assert str(error) == "not scored within 0.3 s (reward_model.timeout_s); its process was killed"
    assert await grade(graders, "c") == ["c", 0.5]


async def test_waiting_for_a_process_does_not_count(graders: GraderProcesses) -> None:
    """Six hanging samples take two processes three deadlines; the last ones wait longer than theirs, and are scored."""
    ended = await asyncio.gather(*(grade(graders, text) for text in ["hang"] * 6 + ["a", "b"]), return_exceptions=True)
    assert ended[6:] == [["a", 0.5], ["b", 0.5]]


async def test_a_call_that_is_cancelled_frees_its_process() -> None:
    def compute_score(solution_str: str) -> str:
        while solution_str == "hang":
            pass
        return solution_str

    graders = GraderProcesses(compute_score, {}, 1, None)
    assert await grade(graders, "warm") == "warm"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await grade(graders, "hang")
    assert await grade(graders, "a") == "a"
    graders.close()


async def test_inputs_that_cannot_be_sent_are_an_error_and_cost_nothing_else(graders: GraderProcesses) -> None:
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
    graders = GraderProcesses(compute_score, {}, 1, None)
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
    graders = GraderProcesses(function, {}, 1, None)
    del sys.modules[function.__module__]  # other tests' processes would look for it too
    with pytest.raises(ConfigError, match=r"can't be loaded in another process: ConfigError: .*gone\.py: there is no such file"):
        await grade(graders, "a")
    graders.close()
