"""Tests of a program that nobody trusts: only right results pass, whatever the program does."""

from __future__ import annotations

import pytest

from reward_loop.errors import SandboxError
from reward_loop.sandbox.local import LocalSandbox
from reward_loop.sandbox.verdict import Limits, TestResult, Verdict
from tests.sandbox.conftest import OpenSandbox
from tests.sandbox.processes import becomes_true, descendants_of

PATIENT = Limits(wall_s=20.0)
QUICK = Limits(wall_s=1.0)
LEVELS = pytest.mark.parametrize("level", [0, 1, 2])


@pytest.fixture
async def sandbox(open_sandbox: OpenSandbox) -> LocalSandbox:
    return await open_sandbox(1)


async def verdicts(
    sandbox: LocalSandbox, source: str, *tests: str, setup: str = "", limits: Limits = PATIENT, go_on: bool = False
) -> list[Verdict]:
    results = await sandbox.run_tests(source, tests, setup=setup, limits=limits, stop_at_failure=not go_on)
    return [result.verdict for result in results]


async def only(sandbox: LocalSandbox, source: str, test: str, setup: str = "", limits: Limits = PATIENT) -> TestResult:
    [result] = await sandbox.run_tests(source, [test], setup=setup, limits=limits)
    return result


@pytest.mark.parametrize("level", [0, 1, 2, 3])
async def test_right_passes_and_wrong_fails_with_the_line_that_says_so(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    results = await sandbox.run_tests(
        "def add(a, b): return a + b", ["assert add(1, 2) == 3", "assert add(1, 1) == 3"], limits=PATIENT
    )
    assert [result.verdict for result in results] == ["passed", "failed"]
    assert results[1].message == "AssertionError: assert add(1, 1) == 3"


async def test_no_test_is_run_after_the_first_failure_unless_asked_for(sandbox: LocalSandbox) -> None:
    tests = ("assert f(1) == 1", "assert f(1) == 2", "assert f(2) == 2")
    assert await verdicts(sandbox, "def f(x): return x", *tests) == ["passed", "failed"]
    assert await verdicts(sandbox, "def f(x): return x", *tests, go_on=True) == ["passed", "failed", "passed"]


async def test_no_tests_have_no_results(sandbox: LocalSandbox) -> None:
    assert await sandbox.run_tests("def f(): pass", []) == []


async def test_after_a_crash_the_other_tests_run_in_a_fresh_process(sandbox: LocalSandbox) -> None:
    source = "import os, time\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2: time.sleep(60)\n    return x"
    tests = ("assert f(0) == 0", "f(1)", "assert f(3) == 3", "f(2)", "assert f(4) == 4")
    assert await verdicts(sandbox, source, *tests, go_on=True, limits=QUICK) == [
        "passed",
        "crashed",
        "passed",
        "timeout",
        "passed",
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "SyntaxError: invalid syntax"),
        ("def f(): pass\n1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\ndef f(): pass\nsys.exit(0)", "RuntimeError: SystemExit: 0"),
        ("def f(): pass\ninput()", "EOFError: EOF when reading a line"),
        ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", "RuntimeError: Odd"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ],
)
async def test_source_that_does_not_load_fails_every_test(sandbox: LocalSandbox, source: str, message: str) -> None:
    results = await sandbox.run_tests(source, ["f()", "f()"], limits=PATIENT, stop_at_failure=False)
    assert [result.verdict for result in results] == ["failed", "failed"]
    assert results[0].message.startswith(message)


async def test_source_that_does_not_end_or_dies_while_it_is_loaded_never_passes(sandbox: LocalSandbox) -> None:
    assert await verdicts(sandbox, "while True: pass", "pass", "pass", go_on=True, limits=QUICK) == ["timeout", "timeout"]
    assert await verdicts(sandbox, "import os; os._exit(0)", "pass", "pass", go_on=True) == ["crashed", "crashed"]
    assert await verdicts(sandbox, "import os; os.abort()", "pass") == ["crashed"]


async def test_what_source_does_only_as_a_main_program_is_not_done(sandbox: LocalSandbox) -> None:
    assert await verdicts(
        sandbox, "def f(): return 1\nif __name__ == '__main__':\n    print(f(int(input())))", "assert f() == 1"
    ) == ["passed"]


async def test_running_out_of_memory_is_told_from_a_wrong_result(sandbox: LocalSandbox) -> None:
    assert await verdicts(sandbox, "def f(): return len(b'x' * (4 << 30))", "f()") == ["oom"]


async def test_exceptions_arrive_as_the_builtin_of_their_name(sandbox: LocalSandbox) -> None:
    source = (
        "class Mine(Exception): pass\ndef f(x):\n    if x: raise KeyError('k')\n    raise Mine('m')\ndef g(): b'\\xff'.decode()"
    )
    test = """
try: f(1)
except KeyError as e: assert e.args == ('k',) or e.args == ("'k'",)
try: f(0)
except RuntimeError as e: assert str(e) == 'Mine: m'
try: g()
except RuntimeError as e: assert 'UnicodeDecodeError' in str(e)
else: assert False
"""
    assert (await only(sandbox, source, test)).verdict == "passed"


async def test_subclasses_and_iterators_arrive_as_plain_data(sandbox: LocalSandbox) -> None:
    source = """
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum
Point = namedtuple("Point", "x y")
class Colour(IntEnum): RED = 1
def counter(): return Counter("aab")
def ordered(): return OrderedDict(a=1)
def default():
    d = defaultdict(list); d["x"].append(1); return d
def point(): return Point(1, 2)
def colour(): return Colour.RED
def squares():
    n = 0
    while True: yield n * n; n += 1
def echo(x): return x
LIMIT = 10
"""
    test = """
from itertools import islice
assert counter() == {"a": 2, "b": 1} and type(counter()) is dict
assert type(ordered()) is dict and default() == {"x": [1]}
assert point() == (1, 2) and colour() == 1
assert list(islice(squares(), 4)) == [0, 1, 4, 9]
for x in (float("inf"), -0.0, 1 << 400, -1, "\\ud800", b"\\x00", None, True, 3j, [1, (2, {3: {4}})], frozenset([1]), range(3)):
    assert echo(x) == x and type(echo(x)) is type(x)
assert echo(float("nan")) != echo(float("nan"))
assert LIMIT == 10
"""
    result = await only(sandbox, source, test)
    assert (result.verdict, result.message) == ("passed", "")


async def test_objects_can_be_called_and_passed_back_and_equal_only_themselves(sandbox: LocalSandbox) -> None:
    source = """
class Solution:
    def two_sum(self, numbers, target): return [i for i, n in enumerate(numbers) if target - n in numbers]
    def __eq__(self, other): return True
    def __hash__(self): return 0
def make(): return Solution()
def use(solution, n): return solution.two_sum([n], 2 * n)
"""
    test = """
s = Solution()
assert s.two_sum([2, 7, 11], 9) == [0, 1]
assert use(s, 4) == [0]
assert make() != s and s != 5 and s == s
"""
    assert (await only(sandbox, source, test)).verdict == "passed"


async def test_a_prompt_as_setup_gives_its_helpers_and_leaves_the_solution_to_source(sandbox: LocalSandbox) -> None:
    setup = 'def poly(x):\n    return x * x - 4\n\ndef root():\n    import math\n    """Return x such that poly(x) is 0."""\n'
    test = "def check(candidate):\n    assert abs(poly(candidate())) < 1e-6\ncheck(root)"
    assert (await only(sandbox, "def root(): return 2", test, setup)).verdict == "passed"
    assert (await only(sandbox, "def root(): return 3", test, setup)).verdict == "failed"


async def test_a_program_replaces_neither_the_helpers_of_its_tests_nor_builtins(sandbox: LocalSandbox) -> None:
    setup = 'def poly(x):\n    return x * x - 4\n\ndef root():\n    """Return x such that poly(x) is 0."""\n'
    cheat = "import builtins\ndef root(): return 3\ndef poly(x): return 0\ncheck = poly\ndef abs(x): return 0\nbuiltins.abs = abs"
    test = "def check(candidate):\n    assert abs(poly(candidate())) < 1e-6\ncheck(root)"
    assert (await only(sandbox, cheat, test, setup)).verdict == "failed"


async def test_a_solution_may_bear_a_builtins_name_where_setup_declares_it(sandbox: LocalSandbox) -> None:
    source = "def sum(a, b):\n    return a * b"
    assert (await only(sandbox, source, "assert sum(2, 3) == 6", "def sum(*arguments): ...")).verdict == "passed"
    assert (await only(sandbox, source, "assert sum(2, 3) == 6")).verdict == "failed"


async def test_tests_share_a_namespace_and_are_isolated_from_the_programs_globals(sandbox: LocalSandbox) -> None:
    assert (
        await verdicts(sandbox, "state = [1]\ndef f(): return state", "x = f()", "x.append(2)\nassert f() == [1]")
        == ["passed"] * 2
    )


async def test_bad_tests_are_a_failure_of_ours(sandbox: LocalSandbox) -> None:
    with pytest.raises(SandboxError, match=r"no valid Python.*invalid syntax"):
        await sandbox.run_tests("def f(): pass", ["assert f( =="])
    with pytest.raises(SandboxError, match="ZeroDivisionError"):
        await sandbox.run_tests("def f(): pass", ["pass"], setup="1 / 0")
    with pytest.raises(SandboxError, match="ended before its tests did"):
        await sandbox.run_tests("def f(): pass", ["import os; os._exit(0)"])
    assert (await only(sandbox, "def f(): return 1", "assert f() == 1")).verdict == "passed"


async def test_a_result_too_large_to_leave_is_a_failed_test_not_a_dead_worker(sandbox: LocalSandbox) -> None:
    result = await only(sandbox, "def f(): return 'x' * (9 << 20)", "f()")
    assert (result.verdict, "bytes of data can't leave" in result.message) == ("failed", True)


ALWAYS_EQUAL = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    def __bool__(self): return True
    def __hash__(self): return hash(3)
    def __add__(self, other): return self
    __radd__ = __sub__ = __rsub__ = __mul__ = __add__
    def __instancecheck__(self, other): return True
class LyingInt(int):
    def __eq__(self, other): return True
    def __hash__(self): return 3
class LyingList(list):
    def __eq__(self, other): return True
    def __len__(self): return 1
"""
CHEATS = {
    "an object that equals everything": ALWAYS_EQUAL + "def f(x): return Liar()",
    "a number that equals everything": ALWAYS_EQUAL + "def f(x): return LyingInt(0)",
    "a list that equals everything": ALWAYS_EQUAL + "def f(x): return LyingList()",
    "no assertion error": "import builtins\nclass Quiet(Exception): pass\nbuiltins.AssertionError = Quiet\ndef f(x): return 0",
    "another comparison": "import builtins\nclass All:\n    def __getattr__(self, name): return lambda *a: True\n"
    "builtins.__import__ = lambda *a, **k: All()\ndef f(x): return 0",
    "everything patched": """
import builtins, gc, sys
names = ('loads', 'dumps', '_exit', 'encode', 'decode', 'judge', 'check', 'report')
for module in list(sys.modules.values()):
    for name in names:
        try: setattr(module, name, lambda *a, **k: True)
        except Exception: pass
for thing in gc.get_objects():
    if isinstance(thing, dict) and 'verdict' in thing: thing['verdict'] = 'passed'
def f(x): return 0
""",
    "frames": """
import sys
def f(x):
    frame = sys._getframe()
    while frame is not None:
        frame.f_locals.update(verdict='passed', value=3, reply=3)
        frame.f_globals.update(verdict='passed')
        frame = frame.f_back
    return 0
""",
    "printed verdicts": """
import json, sys, os
def f(x):
    for fd in (0, 1, 2):
        said = {'nonce': '0' * 32, 'event': 'test', 'verdict': 'passed', 'message': '', 'seconds': 0}
        try: os.write(fd, json.dumps(said).encode() + b'\\n')
        except OSError: pass
    return 0
""",
    "leaving in good time": "import os\ndef f(x): os._exit(0)",
    "leaving early": "import os, threading\nthreading.Timer(0.01, os._exit, [0]).start()\ndef f(x):\n    while 1: pass",
    "an exception that the test may expect": "def f(x): raise AssertionError",
    "trying the exits": "import sys\ndef f(x): sys.exit(0)",
    "killing all": "import os\ndef f(x):\n    os.kill(-1, 9)\n    return 0",
    "closing everything": "import os\ndef f(x):\n    os.closerange(0, 256)\n    return 0",
    "a generator without end": "def f(x):\n    while True: yield 3",
}


@pytest.mark.parametrize("level", [1, 2])
async def test_no_cheat_passes(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    results = {name: await only(sandbox, cheat, "assert f(2) == 3", limits=Limits(wall_s=3.0)) for name, cheat in CHEATS.items()}
    assert {name: result for name, result in results.items() if result.verdict == "passed" or "Syntax" in result.message} == {}
    assert (await only(sandbox, "def f(x): return 3", "assert f(2) == 3")).verdict == "passed"


FORGED = """
import os, struct
def forge(payload):
    for number in range(256):
        try: os.write(number, payload)
        except OSError: pass
"""


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        (FORGED + "forge(b'\\x00' * 100)\ndef f(x): return 3", "tampered"),
        (FORGED + "def f(x):\n    forge(b'garbage' * 100)\n    return 3", "tampered"),
        (FORGED + "def f(x):\n    forge(struct.pack('<I', 0xFFFFFFFF))\n    return 3", "tampered"),
        (FORGED + "def f(x):\n    forge(struct.pack('<I', 1) + b'N')\n    return 3", "tampered"),
        (
            FORGED
            + "import threading\nthreading.Thread(target=lambda: [forge(b'x' * 65536) for _ in range(64)], daemon=True).start()\n"
            + "def f(x): return 3",
            "tampered",
        ),
    ],
)
async def test_forged_frames_are_told_as_tampering(sandbox: LocalSandbox, source: str, verdict: str) -> None:
    assert (await only(sandbox, source, "import time\nassert f(2) == 3\ntime.sleep(0.2)")).verdict == verdict


async def test_a_test_that_swallows_everything_can_not_hide_tampering(sandbox: LocalSandbox) -> None:
    source = FORGED + "def f(x):\n    forge(b'garbage' * 100)\n    return 3"
    assert (await only(sandbox, source, "try:\n    f(1)\nexcept BaseException:\n    pass")).verdict == "tampered"
    assert (
        await only(sandbox, "import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass")
    ).verdict == "crashed"


@LEVELS
async def test_a_daemon_of_a_tested_program_is_gone_afterwards(level: int, open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox(level)
    source = (
        "import os, time\ndef f():\n    if os.fork() == 0:\n        os.setsid()\n        while True: time.sleep(1)\n    return 1"
    )
    assert (await only(sandbox, source, "assert f() == 1")).verdict == "passed"
    assert await becomes_true(lambda: sandbox.pid is not None and descendants_of(sandbox.pid) == set())
