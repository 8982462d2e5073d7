"""What a sandbox is asked and what it answers, whichever runs the program.

Invariants: a verdict is about the program, so a failure of the sandbox itself is a SandboxError instead; nothing that a program
prints, returns or exits with can make a verdict "passed" but the right results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Verdict = Literal["passed", "failed", "timeout", "oom", "crashed", "tampered"]
"""How a test ended. failed: a wrong result or an exception; crashed: the program ended before its test did; tampered: it wrote
what it must not on the channel to its judge."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test of a program may use."""

    wall_s: float = 10.0
    memory_mb: int = 1024
    file_mb: int = 16
    processes: int = 16
    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class TestResult:
    """How one test ended, how long it took, and one line on why it did not pass."""

    __test__ = False  # pytest would take it for a test

    verdict: Verdict
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """How a whole program ended, and what it printed (cut off at `Limits.output_bytes`; `truncated` says so).

    `ended` is "exited" where it came to its end by itself, with whatever exit code.
    """

    ended: Literal["exited", "timeout", "oom", "crashed", "tampered"]
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    seconds: float = 0.0


class Sandbox(Protocol):
    """Runs programs. Both methods raise SandboxError where the sandbox itself failed, and wait for a free place first."""

    async def run_program(self, source: str, stdin: bytes, limits: Limits | None = None) -> ProgramRun:
        """Run Python source as a main program with this standard input; None: the configured limits."""
        ...

    async def run_tests(
        self, source: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None, stop_at_failure: bool = True
    ) -> list[TestResult]:
        """Run test snippets against what Python source defines; one result per test, in order.

        `setup` and the `tests` are trusted; they run one after the other in one namespace, in another process than `source`,
        where each function that `source` defines is there by its name: calling it runs it in the program's process on copies
        of plain data (numbers, text, bytes, None, lists, tuples, dicts, sets; anything else is an opaque handle). A test passes
        if it runs to its end. `stop_at_failure`: the tests after the first that does not pass are not run and have no result.
        """
        ...

    async def close(self) -> None:
        """End everything that was started."""
