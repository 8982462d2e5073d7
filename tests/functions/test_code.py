"""A program is worth what it does on its tests, and a sandbox that fails is worth nothing at all."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from reward_loop.config import SandboxConfig
from reward_loop.errors import ConfigError, DataError, SandboxError
from reward_loop.functions.code import compute_score
from reward_loop.sandbox.local import open_local_sandbox
from reward_loop.sandbox.verdict import Limits, ProgramRun, Sandbox, TestResult

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = {"score", "acc", "verdict", "passed", "tests", "message"}
SQUARE = {"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["1\n", "4\n", "9\n", "16\n"]}
ADD: dict[str, Any] = {"inputs": [[1, 2], [[1], [2]], ["a", "b"]], "outputs": [3, [1, 2], "ab"], "fn_name": "add"}
HUMAN_EVAL = {
    "prompt": 'def twice(x):\n    return 2 * x\n\ndef f(x: int) -> int:\n    """Return twice x, and one."""\n',
    "test": "def check(candidate):\n    for x in range(10):\n        assert candidate(x) == twice(x) + 1\n",
    "entry_point": "f",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncGenerator[Sandbox]:
    sandbox = await open_local_sandbox(SandboxConfig(min_level=0, timeout_s=20.0), places=2)
    yield sandbox
    await sandbox.close()


def fenced(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```\n"


def brief(result: dict[str, Any]) -> tuple[float, str, int, int]:
    assert result.keys() == KEYS
    assert result["acc"] == (result["passed"] == result["tests"])
    assert bool(result["message"]) == (result["verdict"] != "passed")
    return result["score"], result["verdict"], result["passed"], result["tests"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print(int(input()) ** 2)", (1.0, "passed", 4, 4)),
        ("if __name__ == '__main__':\n    print(float(input()) ** 2)", (1.0, "passed", 4, 4)),
        ("n = int(input())\nprint(n ** 2 if n < 3 else 0)", (0.0, "failed", 2, 4)),
        ("print(int(input()) ** 2)\n1 / 0", (0.0, "failed", 0, 4)),
        ("print(int(input()) ** 2", (0.0, "failed", 0, 4)),
        ("import os\nos._exit(0)", (0.0, "failed", 0, 4)),
        ("import os\nos.kill(os.getpid(), 11)", (0.0, "crashed", 0, 4)),
        ("x = bytearray(1 << 40)", (0.0, "oom", 0, 4)),
        ("for _ in range(10_000): print('a' * 1000)", (0.0, "failed", 0, 4)),
    ],
)
async def test_a_program_is_judged_by_what_it_prints(sandbox: Sandbox, code: str, outcome: object) -> None:
    assert brief(await compute_score(fenced(code), SQUARE, sandbox=sandbox)) == outcome


async def test_the_message_says_why_the_first_test_failed(sandbox: Sandbox) -> None:
    result = await compute_score(fenced("print(1)"), SQUARE, sandbox=sandbox)
    assert result["message"] == "line 1 is '1', not '4'"
    result = await compute_score(fenced("1 / 0"), SQUARE, sandbox=sandbox)
    assert result["message"] == "exit code 1: ZeroDivisionError: division by zero"


async def test_a_share_of_the_tests_is_a_share_of_the_reward_if_it_is_continuous(sandbox: Sandbox) -> None:
    code = fenced("n = int(input())\nprint(n ** 2 if n != 2 else 0)")
    assert brief(await compute_score(code, SQUARE, sandbox=sandbox, continuous=True)) == (0.75, "failed", 3, 4)
    assert brief(await compute_score(code, SQUARE, sandbox=sandbox, continuous=True, max_tests=2)) == (0.5, "failed", 1, 2)
    assert brief(await compute_score(code, SQUARE, sandbox=sandbox, max_tests=1)) == (1.0, "passed", 1, 1)
    wrong = fenced("def add(a, b):\n    return a + b if a == 1 else 0")
    assert brief(await compute_score(wrong, ADD, sandbox=sandbox, continuous=True)) == (1 / 3, "failed", 1, 3)


@pytest.mark.parametrize("response", ["", "The answer is 42.", "```cpp\nint x;\n```"])
@pytest.mark.parametrize("truth", [SQUARE, ADD, HUMAN_EVAL], ids=["print", "call", "complete"])
async def test_a_response_without_code_is_wrong(sandbox: Sandbox, response: str, truth: dict[str, Any]) -> None:
    score, verdict, passed, _ = brief(await compute_score(response, truth, sandbox=sandbox))
    assert (score, verdict, passed) == (0.0, "no_code", 0)


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    return a + b",
        "add = lambda a, b: a + b",
        "class Solution:\n    def add(self, a: List[int], b: Optional[int]) -> int:\n        return a + b",
        "from __future__ import annotations\nclass Solution:\n  def add(self, a, b):\n    return reduce(operator.add, [b], a)",
        "def add(a, b):\n    return [(a + b)]",
    ],
)
async def test_a_function_or_a_method_of_solution_is_called(sandbox: Sandbox, code: str) -> None:
    score, *_ = brief(await compute_score(fenced(code), json.dumps(ADD), sandbox=sandbox))
    assert score == (1.0 if "[(" not in code else 0.0)


@pytest.mark.parametrize(
    ("returned", "given", "wanted", "right"),
    [
        ("(1, (2, 3))", [], [1, [2, 3]], True),
        ("5", [], [5], True),
        ("1", [], [1, 2], False),
        ("[[5]]", [], [5], False),
        ("{1: 'a'}", [], {"1": "a"}, True),
        ("{1, 2}", [], [1, 2], False),
        ("None", [], None, True),
        ("list(x[0])", [{"1": 2, "-3": 4}], [1, -3], True),
        ("list(x[0])", [{"a": 2}], ["a"], True),
        ("x", '1\n"a"\n[2]', '[1, "a", [2]]', True),
        ("x[0]", "12", "12", True),
        ("'12'", "12", "12", False),
        ("'a b'", "1", "a b", True),
        ("0.1 + 0.2", [], 0.3, False),
        ("[True]", [], [1], True),
        ("10 ** 5000", [], 1, False),
        ("object()", [], None, False),
        ("type('Any', (), {'__eq__': lambda *_: True})()", [], 1, False),
    ],
)
async def test_what_a_function_returns_is_compared_as_json_has_it(
    sandbox: Sandbox, returned: str, given: object, wanted: object, right: bool
) -> None:
    truth = {"inputs": [given], "outputs": [wanted], "fn_name": "f"}
    result = await compute_score(fenced(f"def f(*x):\n    return {returned}"), truth, sandbox=sandbox)
    assert (result["score"], result["verdict"]) == ((1.0, "passed") if right else (0.0, "failed"))


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        ("    return 2 * x + 1\n", "passed"),
        (fenced("def f(x):\n    return twice(x) + 1"), "passed"),
        (fenced("def f(x):\n    return x"), "failed"),
        (fenced("def g(x):\n    return x"), "failed"),
        (fenced("def twice(x):\n    return 0\ndef f(x):\n    return 1"), "failed"),
        (fenced("def check(candidate):\n    pass\ndef range(n):\n    return []\ndef f(x):\n    return 0"), "failed"),
        (fenced("import os\ndef f(x):\n    os._exit(0)"), "crashed"),
        (fenced("def f(x):\n    raise SystemExit(0)"), "failed"),
    ],
)
async def test_human_eval_takes_completions_and_functions(sandbox: Sandbox, response: str, verdict: str) -> None:
    for truth in (HUMAN_EVAL, json.dumps(HUMAN_EVAL)):
        score, found, _, tests = brief(await compute_score(response, truth, sandbox=sandbox))
        assert (score, found, tests) == (float(verdict == "passed"), verdict, 1)


@pytest.mark.parametrize(
    ("code", "truth", "outcome"),
    [
        ("def f(x): return x + 1", {"test_list": ["assert f(1) == 2", "assert f(2) == 3"]}, (1.0, "passed", 2, 2)),
        ("def f(x): return 2", {"test_list": ["assert f(1) == 2", "assert f(2) == 3"]}, (0.0, "failed", 1, 2)),
        ("def sum(a, b): return a + b", {"test_list": ["assert sum(1, 2) == 3"]}, (1.0, "passed", 1, 1)),
        (
            "def set(x): return 0\ndef f(x): return [3]",
            {"test_list": ["assert set(f(1)) == set([1])"]},
            (0.0, "failed", 0, 1),
        ),
        (
            "import math\ndef f(x): return x * math.pi",
            {"test_list": ["assert math.isclose(f(X), math.tau)"], "test_imports": ["import math"], "test_setup_code": "X = 2"},
            (1.0, "passed", 1, 1),
        ),
        ("def f(x): return 1", {"test_list": ["assert f(y) == 1"], "test_setup_code": "y = Pair(1)"}, (0.0, "failed", 0, 1)),
    ],
)
async def test_mbpp_runs_assertions(sandbox: Sandbox, code: str, truth: dict[str, Any], outcome: object) -> None:
    assert brief(await compute_score(fenced(code), truth, sandbox=sandbox)) == outcome


async def test_many_calls_go_to_the_sandbox_in_parts(sandbox: Sandbox) -> None:
    truth = {"inputs": [[n] for n in range(25)], "outputs": [n + (n == 23) for n in range(25)], "fn_name": "f"}
    code = fenced("def f(n):\n    return n")
    assert brief(await compute_score(code, truth, sandbox=sandbox)) == (0.0, "failed", 23, 25)
    assert brief(await compute_score(code, truth, sandbox=sandbox, continuous=True)) == (24 / 25, "failed", 24, 25)


class SlowSandbox:
    """Says that every test passed, and that it took a minute."""

    def __init__(self) -> None:
        self.tests = 0

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        self.tests += 1
        return ProgramRun("exited", 0, stdin, b"", seconds=60.0)

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        self.tests += len(tests)
        return [TestResult("passed", "", 60.0)] * len(tests)

    async def close(self) -> None:
        """Nothing was started."""


@pytest.mark.parametrize("continuous", [False, True])
async def test_the_tests_that_the_time_budget_leaves_out_are_timeouts(continuous: bool) -> None:
    slow = SlowSandbox()
    truth = {"inputs": ["1"] * 50, "outputs": ["1"] * 50}
    result = await compute_score(fenced("x = 1"), truth, sandbox=slow, continuous=continuous, time_budget_s=100.0)
    assert brief(result) == (2 / 50 if continuous else 0.0, "timeout", 2, 50)
    assert result["message"] == "the tests before it took more than 100.0 s (time_budget_s)"
    calls = {"inputs": [[1]] * 50, "outputs": [1] * 50, "fn_name": "f"}
    result = await compute_score(fenced("x = 1"), calls, sandbox=slow, continuous=continuous, time_budget_s=100.0)
    assert (result["verdict"], slow.tests) == ("timeout", 2 + 10)


class BrokenSandbox(SlowSandbox):
    """Fails."""

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        raise SandboxError("the disk is full")

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        return []


async def test_a_failure_of_the_sandbox_is_no_reward() -> None:
    with pytest.raises(SandboxError, match="the disk is full"):
        await compute_score(fenced("x = 1"), SQUARE, sandbox=BrokenSandbox())
    with pytest.raises(SandboxError, match="gave no result for 3 tests"):
        await compute_score(fenced("x = 1"), ADD, sandbox=BrokenSandbox())


async def test_output_that_can_not_be_kept_whole_is_an_error_where_it_is_expected(sandbox: Sandbox) -> None:
    code = fenced("print('a' * 100_000)")
    with pytest.raises(
        ConfigError, match=r"expects 100000 characters of output, of which only 65536 bytes are kept; raise sandbox\.output_kb"
    ):
        await compute_score(code, {"inputs": [""], "outputs": ["a" * 100_000]}, sandbox=sandbox)
    noisy = fenced("import sys\nprint('a' * 100_000, file=sys.stderr)\nprint(1)")
    assert (await compute_score(noisy, {"inputs": [""], "outputs": ["1"]}, sandbox=sandbox))["score"] == 1.0


async def test_without_a_sandbox_or_with_bad_settings_nothing_is_scored(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigError, match=r"need a sandbox: the reward loop gives it to them.*take a parameter `sandbox`"):
        await compute_score(fenced("x = 1"), SQUARE)
    with pytest.raises(ConfigError, match="max_tests=0 leaves no test; set 1 or more, or null for all"):
        await compute_score(fenced("x = 1"), SQUARE, sandbox=sandbox, max_tests=0)
    with pytest.raises(DataError, match="has the keys"):
        await compute_score(fenced("x = 1"), {"target": 1}, sandbox=sandbox)
