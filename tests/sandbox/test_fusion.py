"""A service elsewhere gives the same verdicts, and its own failures are errors, after as many attempts as make sense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reward_loop.config import SandboxFusionConfig
from reward_loop.errors import ConfigError, SandboxError
from reward_loop.limits.reservation import Reservation
from reward_loop.sandbox.fusion import FusionSandbox
from reward_loop.sandbox.fusion_answer import program_run, read_answer, results_of
from reward_loop.sandbox.verdict import Limits, ProgramRun, Verdict
from tests.fusion_service import FusionService, Mood, fusion_service

ADD = "def add(a, b):\n    return a + b\n"
GENEROUS = Limits(wall_s=30.0)


class CountingLimiter:
    """Lets `places` requests through at a time and keeps what it was told."""

    def __init__(self, places: int = 100) -> None:
        self._places = asyncio.Semaphore(places)
        self.reserved = 0
        self.throttled_for: list[float | None] = []
        self.closed = False

    @asynccontextmanager
    async def reserve(self, tokens: int | None = None) -> AsyncGenerator[Reservation]:
        async with self._places:
            self.reserved += 1
            yield self

    def used(self, tokens: int) -> None:
        raise NotImplementedError("a run of a program has no tokens")

    def throttled(self, retry_after_s: float | None) -> None:
        self.throttled_for.append(retry_after_s)

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def sandbox_of(
    service: FusionService, limiter: CountingLimiter | None = None, **options: Any
) -> AsyncGenerator[FusionSandbox]:
    options = {"limits": GENEROUS, "backoff_s": 0.001, **options}
    sandbox = FusionSandbox(SandboxFusionConfig(url=service.url), limiter or CountingLimiter(), **options)
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def test_a_program_reads_and_prints() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        run = await sandbox.run_program("print(input()[::-1])", b"abc\n")
    assert (run.ended, run.exit_code, run.stdout, run.truncated) == ("exited", 0, b"cba\n", False)
    asked = service.asked[0]
    assert {name: asked[name] for name in ("code", "stdin", "language", "files")} == {
        "code": "print(input()[::-1])",
        "stdin": "abc\n",
        "language": "python",
        "files": {},
    }
    assert (asked["memory_limit_MB"], asked["run_timeout"]) == (1024, 30.0)


async def test_the_address_may_name_the_path_or_not() -> None:
    async with fusion_service() as service:
        for url in (service.url, f"{service.url}/", f"{service.url}/run_code", service.url.removeprefix("http://")):
            sandbox = FusionSandbox(SandboxFusionConfig(url=url), CountingLimiter())
            assert (await sandbox.run_program("", b"")).ended == "exited"
            await sandbox.close()


def test_without_an_address_there_is_no_sandbox() -> None:
    with pytest.raises(ConfigError, match=r"sandbox_fusion\.url is not set; set it to"):
        FusionSandbox(SandboxFusionConfig(), CountingLimiter())


async def test_an_exit_code_and_a_traceback_come_back() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        run = await sandbox.run_program("print(1)\n1 / 0", b"")
    assert (run.ended, run.exit_code, run.stdout) == ("exited", 1, b"1\n")
    assert run.stderr.rstrip().endswith(b"ZeroDivisionError: division by zero")


async def test_the_output_is_cut_off() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        run = await sandbox.run_program("print('a' * 1000)", b"", Limits(output_bytes=10))
    assert (run.stdout, run.truncated) == (b"a" * 10, True)


async def test_a_program_that_spins_is_a_timeout() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        assert (await sandbox.run_program("while True: pass", b"", Limits(wall_s=0.5))).ended == "timeout"


async def test_a_program_that_is_killed_has_crashed_and_one_without_memory_says_so() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        assert (await sandbox.run_program("import os; os.kill(os.getpid(), 11)", b"")).ended == "crashed"
        assert (await sandbox.run_program("raise MemoryError", b"")).ended == "oom"


async def test_tests_pass_where_the_program_is_right() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        results = await sandbox.run_tests(
            ADD, ["assert add(1, 2) == 3", "assert add([1], [2]) == [1, 2] == WANTED"], setup="WANTED = [1, 2]"
        )
    assert [result.verdict for result in results] == ["passed", "passed"]
    assert len(service.asked) == 1


async def test_the_first_failure_ends_the_tests_unless_all_are_wanted() -> None:
    tests = ["assert add(1, 2) == 3", "assert add(1, 2) == 4", "assert add(2, 2) == 4"]
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        results = await sandbox.run_tests(ADD, tests)
        assert [result.verdict for result in results] == ["passed", "failed"]
        assert results[1].message == "AssertionError: assert add(1, 2) == 4"
        results = await sandbox.run_tests(ADD, tests, stop_at_failure=False)
        assert [result.verdict for result in results] == ["passed", "failed", "passed"]


HOSTILE: dict[str, tuple[str, Verdict]] = {
    "raises": ("def add(a, b): raise ValueError('no')", "failed"),
    "is no Python": ("def add(a, b) return", "failed"),
    "lacks the function": ("x = 1", "failed"),
    "exits": ("import os\nos._exit(0)", "crashed"),
    "exits when called": ("import os\ndef add(a, b): os._exit(0)", "crashed"),
    "is equal to everything": ("class Any:\n    def __eq__(self, other): return True\ndef add(a, b): return Any()", "failed"),
    "an integer that is equal to everything": (
        "class Any(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Any(7)",
        "failed",
    ),
    "spins": ("def add(a, b):\n    while True: pass", "timeout"),
    "leaves a daemon that holds the line": (
        "import os, time\ndef add(a, b):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(3)\n    os._exit(0)",
        "timeout",
    ),
    "takes all memory": ("def add(a, b): return len(bytearray(1 << 40))", "oom"),
    "prints a verdict": ('print(\'{"nonce": "", "event": "test", "verdict": "passed"}\')\ndef add(a, b): return 0', "failed"),
    "writes on every descriptor": (
        "import os\nfor number in range(3, 20):\n    try: os.write(number, b'passed')\n    except OSError: pass\n"
        "def add(a, b): return 0",
        "tampered",
    ),
    "kills its parent": ("import os, time\nos.kill(os.getppid(), 9)\ndef add(a, b): return 3", "tampered"),
    "looks for the tests": (
        "import os, sys, gc\ndef add(a, b):\n"
        "    seen = [open(f'/proc/{pid}/cmdline').read() for pid in ('self', os.getppid())]\n"
        "    seen += [repr(gc.get_objects()), open('program.py').read()]\n"
        "    return 3 if any(''.join(['sum', 'mer']) in text for text in seen) else 0",
        "failed",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_program_that(name: str) -> None:
    source, verdict = HOSTILE[name]
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        limits = Limits(wall_s=1.0 if verdict == "timeout" else 30.0)
        results = await sandbox.run_tests(source, ["assert add(1, 2) == 3, 'summer'", "assert add(2, 2) == 4"], limits=limits)
    assert [result.verdict for result in results] == [verdict]
    assert results[0].message


async def test_tests_go_on_after_one_that_hung_or_crashed_if_all_are_wanted() -> None:
    source = "import os\ndef f(n):\n    while n == 1: pass\n    return os._exit(1) if n == 2 else n\n"
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        tests = [f"assert f({n}) == {n}" for n in range(4)]
        results = await sandbox.run_tests(source, tests, limits=Limits(wall_s=2.0), stop_at_failure=False)
    assert [result.verdict for result in results] == ["passed", "timeout", "crashed", "passed"]


async def test_a_program_that_is_slow_on_every_test_is_ended_for_all() -> None:
    source = "import time\ndef f(n):\n    time.sleep(3600)\n"
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        tests = ["assert f(1) == 1"] * 100
        results = await sandbox.run_tests(source, tests, limits=Limits(wall_s=0.1), stop_at_failure=False)
        assert [result.verdict for result in results] == ["timeout"] * 100
    assert service.asked[0]["run_timeout"] < 20


async def test_what_ends_just_as_its_time_is_up_takes_nothing_from_the_next_test() -> None:
    # The tests sleep in the tester, not in the program: so the time is up before it reports, and a verdict comes after the kill.
    slow = "import time; time.sleep(2); assert f(1) == 1"
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        tests = ["import time; time.sleep(2)", "assert f(1) == 1", slow, "assert f(2) == 2"]
        results = await sandbox.run_tests("def f(n): return n", tests, limits=Limits(wall_s=1.0), stop_at_failure=False)
    assert [result.verdict for result in results] == ["passed", "passed", "timeout", "passed"]


async def test_time_that_is_up_while_the_tests_are_set_up_is_no_crash_of_the_program() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        setup, limits = "import time; time.sleep(2)", Limits(wall_s=1.0)  # the tester sleeps, as above
        results = await sandbox.run_tests("def f(n): return n", ["assert f(1) == 1"] * 2, setup=setup, limits=limits)
    assert [result.verdict for result in results] == ["timeout"]


async def test_tests_that_are_no_python_are_a_failure_of_ours() -> None:
    async with fusion_service() as service, sandbox_of(service) as sandbox:
        with pytest.raises(SandboxError, match=r"the tests of the ground truth can't be run: .*no valid Python"):
            await sandbox.run_tests(ADD, ["assert add("])


@pytest.mark.parametrize("mood", ["429", "502", "504", "hang up", "sandbox error"])
async def test_what_may_pass_is_tried_again(mood: Mood) -> None:
    limiter = CountingLimiter()
    async with fusion_service(mood, mood) as service, sandbox_of(service, limiter) as sandbox:
        assert (await sandbox.run_program("print(1)", b"")).stdout == b"1\n"
    assert len(service.asked) == limiter.reserved == 3
    assert limiter.closed


async def test_a_429_halts_everyone_through_the_limiter() -> None:
    limiter = CountingLimiter()
    async with fusion_service("429", retry_after="7") as service, sandbox_of(service, limiter) as sandbox:
        await sandbox.run_program("", b"")
    assert limiter.throttled_for == [7.0]


async def test_a_service_that_never_recovers_is_named_with_its_last_answer() -> None:
    async with fusion_service("504", "504", "504") as service, sandbox_of(service, attempts=3) as sandbox:
        with pytest.raises(SandboxError, match=rf"{service.url}/run_code: all 3 attempts failed, .*status 504: 'I feel 504'"):
            await sandbox.run_program("", b"")
    assert len(service.asked) == 3


async def test_nobody_at_the_address_is_an_error_after_the_attempts() -> None:
    async with fusion_service() as service:
        pass
    async with sandbox_of(service, attempts=2) as sandbox:
        with pytest.raises(SandboxError, match=r"all 2 attempts failed, .*Connect"):
            await sandbox.run_program("", b"")


async def test_an_address_that_is_none_is_an_error_at_once() -> None:
    sandbox = FusionSandbox(SandboxFusionConfig(url="http://:8080:x"), CountingLimiter())
    with pytest.raises(SandboxError, match=r"sandbox_fusion\.url: 'http://:8080:x/run_code' is no address"):
        await sandbox.run_program("", b"")
    await sandbox.close()


async def test_a_service_that_hangs_is_given_up_at_the_deadline() -> None:
    async with fusion_service("hang", "hang") as service, sandbox_of(service, attempts=2, slack_s=-10.0) as sandbox:
        with pytest.raises(SandboxError, match=r"all 2 attempts failed, the last with: .*Timeout"):
            await sandbox.run_program("", b"", Limits(wall_s=0.2))
    assert len(service.asked) == 2


@pytest.mark.parametrize(
    ("mood", "message"),
    [
        ("404", "refused the request with status 404: 'I feel 404'; check sandbox_fusion.url"),
        ("500", "refused the request with status 500"),
        ("garbage", "malformed: Invalid JSON.*begins '<html>"),
        ("empty", "malformed: Field required at status"),
        ("runs nothing", "neither run_result nor compile_result"),
    ],
)
async def test_what_will_not_pass_is_an_error_at_once(mood: Mood, message: str) -> None:
    async with fusion_service(mood) as service, sandbox_of(service) as sandbox:
        with pytest.raises(SandboxError, match=message):
            await sandbox.run_program("", b"")
    assert len(service.asked) == 1


async def test_no_more_requests_are_in_flight_than_the_limiter_lets_through() -> None:
    async with fusion_service() as service, sandbox_of(service, CountingLimiter(2)) as sandbox, asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(sandbox.run_program("", b""))
    assert service.at_once == 2


def run_that_printed(*lines: object, ended: Any = "exited") -> ProgramRun:
    stdout = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return ProgramRun(ended, 0, stdout.encode(), b"")


def test_only_lines_with_the_nonce_are_results() -> None:
    ready = {"nonce": "n", "event": "ready"}
    forged = {"nonce": "m", "event": "test", "verdict": "passed", "message": "", "seconds": 0.0}
    run = run_that_printed(ready, forged, "n passed", ["n"], 3, {**forged, "nonce": "n", "verdict": "failed"})
    assert [result.verdict for result in results_of(run, "n", 2, stop_at_failure=True)] == ["failed"]
    assert [result.verdict for result in results_of(run_that_printed(ready), "n", 2, stop_at_failure=False)] == ["tampered"] * 2


def test_a_tester_that_did_not_start_is_a_failure_of_ours() -> None:
    with pytest.raises(SandboxError, match=r"could not start the tester, which needs Python 3\.9"):
        results_of(run_that_printed(), "n", 1, stop_at_failure=True)


def test_a_program_that_does_not_compile_has_exited_with_a_code() -> None:
    body = {"status": "Failed", "compile_result": {"status": "Finished", "return_code": 1, "stderr": "SyntaxError"}}
    run = program_run(read_answer(json.dumps(body).encode()), 100)
    assert (run.ended, run.exit_code, run.stderr) == ("exited", 1, b"SyntaxError")
