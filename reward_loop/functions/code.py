"""Rule of code data sets: the program in a response passes the tests of its ground truth. 1 or 0, or the share of tests passed.

    verdict   the first that is not "passed" (see sandbox.verdict); "no_code" where the response has no program
    passed    tests that passed, of `tests`; without `continuous` those before the first that did not
    message   why the first one did not pass; "" where all did

Invariants: nothing that is expected enters the program's process; a failure of the sandbox is an error, never a 0.
"""

from __future__ import annotations

from typing import Any

from reward_loop.errors import ConfigError, SandboxError
from reward_loop.functions.code_compare import first_difference
from reward_loop.functions.code_tests import PrintTest, PrintTests, Tests, tests_of
from reward_loop.functions.rules import NO_SANDBOX
from reward_loop.sandbox.verdict import ProgramRun, Sandbox, TestResult

_TESTS_AT_ONCE = 10
"""Snippets that go to the sandbox together; the time budget is looked at in between."""


async def compute_score(
    solution_str: str,
    ground_truth: object,
    *,
    sandbox: Sandbox | None = None,
    continuous: bool = False,
    max_tests: int | None = None,
    time_budget_s: float = 100.0,
) -> dict[str, Any]:
    """Score by the first `max_tests` tests (None: all): 1.0 if all pass, else 0.0 or, if `continuous`, the share that does.

    Once the tests have taken `time_budget_s` seconds together, those that are left count as timeouts: a program that hangs on
    each of a hundred tests is a wrong answer, not a sample over its deadline.
    Raises DataError for a ground truth in no known form, ConfigError without a sandbox, SandboxError where that failed.
    """
    if sandbox is None:
        raise ConfigError(NO_SANDBOX)
    if max_tests is not None and max_tests < 1:
        raise ConfigError(f"max_tests={max_tests} leaves no test; set 1 or more, or null for all")
    tests = tests_of(ground_truth)
    count = len(tests.tests[:max_tests])
    program = tests.program(solution_str)
    if program is None:
        return _result("no_code", 0, count, "the response has no Python code", continuous)
    results: list[TestResult] = []
    while len(results) < count and (continuous or not _failures(results)):
        if sum(result.seconds for result in results) > time_budget_s:
            results.append(TestResult("timeout", f"the tests before it took more than {time_budget_s} s (time_budget_s)"))
            break
        results += await _run_some(sandbox, program, tests, len(results), count, stop_at_failure=not continuous)
    first = next(iter(_failures(results)), TestResult("passed"))
    return _result(first.verdict, len(results) - len(_failures(results)), count, first.message, continuous)


def _failures(results: list[TestResult]) -> list[TestResult]:
    return [result for result in results if result.verdict != "passed"]


def _result(verdict: str, passed: int, count: int, message: str, continuous: bool) -> dict[str, Any]:
    score = passed / count if continuous else float(passed == count)
    return {
        "score": score,
        "acc": passed == count,
        "verdict": verdict,
        "passed": passed,
        "tests": count,
        "message": message,
    }


async def _run_some(
    sandbox: Sandbox, program: str, tests: Tests, begin: int, count: int, *, stop_at_failure: bool
) -> list[TestResult]:
    """Run the test number `begin`, and with snippets some that follow, of `count`."""
    if isinstance(tests, PrintTests):
        test = tests.tests[begin]
        return [_judged(await sandbox.run_program(program, test.stdin.encode("utf-8", "replace")), test)]
    some = tests.tests[begin : min(begin + _TESTS_AT_ONCE, count)]
    results = await sandbox.run_tests(program, some, setup=tests.setup, stop_at_failure=stop_at_failure)
    if not results:
        raise SandboxError(f"the sandbox gave no result for {len(some)} tests")
    return results


def _judged(run: ProgramRun, test: PrintTest) -> TestResult:
    if run.ended != "exited":
        return TestResult(run.ended, _last_line(run.stderr) or f"{run.ended} after {run.seconds:.2f} s", run.seconds)
    if run.exit_code:
        return TestResult("failed", f"exit code {run.exit_code}: {_last_line(run.stderr)}", run.seconds)
    is_cut = run.truncated and len(run.stdout) >= len(run.stderr)  # else it is stderr that was cut off
    if is_cut and len(test.expected) > len(run.stdout):
        raise ConfigError(
            f"a test expects {len(test.expected)} characters of output, of which only {len(run.stdout)} bytes are kept; "
            "raise sandbox.output_kb or leave the sample out"
        )
    printed = run.stdout.decode("utf-8", "replace")
    difference = "more output than is kept" if is_cut else first_difference(printed, test.expected)
    return TestResult("failed" if difference else "passed", difference or "", run.seconds)


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
