"""What a SandboxFusion service answers, read strictly.

Invariant: an answer that does not have the documented form is a SandboxError, never a verdict.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from reward_loop.errors import SandboxError
from reward_loop.sandbox.verdict import ProgramRun, TestResult, Verdict


class CommandRun(BaseModel):
    """One command that the service ran."""

    model_config = ConfigDict(frozen=True)

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class Answer(BaseModel):
    """An answer to /run_code. status: the program ended well, it did not, or the service itself failed."""

    model_config = ConfigDict(frozen=True)

    status: Literal["Success", "Failed", "SandboxError"]
    message: str | None = None
    compile_result: CommandRun | None = None
    run_result: CommandRun | None = None


def read_answer(body: bytes) -> Answer:
    """Read an answer's body; SandboxError for anything else."""
    try:
        answer = Answer.model_validate_json(body)
    except ValidationError as error:
        problem = f"{error.errors()[0]['msg']} at {'.'.join(map(str, error.errors()[0]['loc'])) or 'the top'}"
        raise SandboxError(f"the sandbox service's answer is malformed: {problem}; it begins {_shown(body)}") from error
    if answer.status != "SandboxError" and answer.run_result is None and answer.compile_result is None:
        raise SandboxError(f"the sandbox service's answer has neither run_result nor compile_result; it begins {_shown(body)}")
    return answer


def program_run(answer: Answer, output_bytes: int) -> ProgramRun:
    """Return how the program of an answer ended."""
    run = answer.run_result or answer.compile_result
    if run is None:
        raise SandboxError("the sandbox service ran nothing")
    stdout, stderr = ((text or "").encode("utf-8", "replace") for text in (run.stdout, run.stderr))
    return ProgramRun(
        ended=_ended(run, stderr),
        exit_code=run.return_code,
        stdout=stdout[:output_bytes],
        stderr=stderr[-output_bytes:],
        truncated=len(stdout) > output_bytes,
        seconds=run.execution_time or 0.0,
    )


def _ended(run: CommandRun, stderr: bytes) -> Literal["exited", "timeout", "oom", "crashed"]:
    if run.status == "TimeLimitExceeded":
        return "timeout"
    if run.return_code and stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return "oom"
    # A negative code is a signal's; without one the service could not even start or follow the program.
    return "exited" if run.status == "Finished" and run.return_code is not None and run.return_code >= 0 else "crashed"


def results_of(run: ProgramRun, nonce: str, tests: int, *, stop_at_failure: bool) -> list[TestResult]:
    """Return the results of so many tests out of what the tester printed."""
    said = [event for line in run.stdout.split(b"\n") if (event := _event(line, nonce)) is not None]
    events = [event["event"] for event in said]
    if "ready" not in events:
        raise SandboxError(
            f"the sandbox service could not start the tester, which needs Python 3.9 or newer on Linux "
            f"({run.ended}, exit code {run.exit_code}): {_shown(run.stderr[-400:])}"
        )
    if "invalid" in events:
        raise SandboxError(f"the tests of the ground truth can't be run: {said[events.index('invalid')]['message']}")
    results = [_result(event) for event in said if event["event"] in ("test", "unloadable")]
    if len(results) < tests and not (stop_at_failure and results and results[-1].verdict != "passed"):
        # What did not even load fails every test in the same way; else the tester itself was ended.
        why = results[-1] if "unloadable" in events else _cut_short(run)
        results += [why] * (1 if stop_at_failure else tests - len(results))
    return results[:tests]


def _cut_short(run: ProgramRun) -> TestResult:
    """The tester is ours, and only the time limit or the program can have ended it."""
    if run.ended in ("timeout", "oom"):
        return TestResult("timeout" if run.ended == "timeout" else "oom", "all tests together took too much", 0.0)
    return TestResult("tampered", f"the process of the tests was ended ({run.ended}, exit code {run.exit_code})", 0.0)


def _event(line: bytes, nonce: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and event.get("nonce") == nonce and isinstance(event.get("event"), str) else None


def _result(event: dict[str, Any]) -> TestResult:
    verdict: Verdict = event["verdict"] if event["verdict"] in get_args(Verdict) else "failed"
    return TestResult(verdict, str(event["message"]), float(event["seconds"]))


def _shown(body: bytes) -> str:
    return repr(body[:200].decode("utf-8", "replace"))
