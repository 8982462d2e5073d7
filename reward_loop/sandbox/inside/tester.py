"""The judge's side of a test run: it runs the tests, whose calls go to the program's process, and reports how each ended.

Invariants: what a program defines reaches the tests as plain data or as a proxy, so that no comparison of theirs runs its code; a
program's names replace neither builtins nor what `setup` and the tests define themselves; whatever the program did to the line, a
test that follows is not passed.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import os
import time
from typing import Any, NoReturn

from reward_loop.sandbox.inside import program
from reward_loop.sandbox.inside.channel import Channel, Gone
from reward_loop.sandbox.inside.codec import Malformed, decode, encode


class LineDown(BaseException):
    """The program can't be asked any more; no `except Exception` of a test hides it."""


class Remote:
    """Something that lives in the program's process: it can be called, asked for a method, and passed back."""

    __slots__ = ("_line", "attribute_", "number_")

    def __init__(self, line: Line, number: int, attribute: str | None = None) -> None:
        self._line, self.number_, self.attribute_ = line, number, attribute

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        """Call it over there."""
        return self._line.call(self.number_, self.attribute_, arguments, keywords)

    def __getattr__(self, name: str) -> Remote:
        if name.startswith("_") or self.attribute_ is not None:
            raise AttributeError(f"{name!r} of an object in the sandbox is out of reach; call its public methods")
        return Remote(self._line, self.number_, name)


class Line:
    """The calls that go over to the program; `broken` says why there can be no more of them."""

    def __init__(self, descriptor: int) -> None:
        self._channel = Channel(descriptor)
        self._remotes: dict[int, Remote] = {}
        self._sequence = 0
        self.broken: tuple[str, str] | None = None
        self.blamed: BaseException | None = None

    def loaded(self) -> dict[str, Any]:
        """Wait until source has been executed and return what it defines by its names; raises what it raised."""
        names = self._result(self._reply())
        if not isinstance(names, dict) or not all(isinstance(name, str) and name.isidentifier() for name in names):
            self._down("tampered", "the program announced names that are none")
        return names

    def call(self, number: int, attribute: str | None, arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
        """Return what the program's object returns, as plain data; raises what it raised."""
        self.check()
        self._sequence += 1
        frame = encode((self._sequence, number, attribute, arguments, keywords), _number_of)
        try:
            self._channel.send(frame)
        except Gone as gone:
            self._down("crashed", f"the program ended before its test did: {gone}")
        return self._result(self._reply())

    def check(self) -> None:
        """Raise LineDown where the line is broken or the program has sent what it was not asked for."""
        if self.broken is None and not self._channel.is_silent():
            self.broken = ("tampered", "the program wrote on the line to its judge without being asked")
        if self.broken is not None:
            raise LineDown(*self.broken)

    def _reply(self) -> tuple[Any, ...]:
        try:
            reply = decode(self._channel.receive(), self._remote)
        except Gone as gone:
            self._down("crashed", f"the program ended before its test did: {gone}")
        except Malformed as error:
            self._down("tampered", f"the program wrote something else than an answer: {error}")
        except ValueError as error:
            self._down("tampered", f"the program wrote something else than an answer: {error}")
        if type(reply) is not tuple or len(reply) < 3 or type(reply[0]) is not int or reply[0] != self._sequence:
            self._down("tampered", "the program answered what it was not asked")
        return reply

    def _result(self, reply: tuple[Any, ...]) -> Any:
        if reply[1] is True and len(reply) == 3:
            return reply[2]
        if reply[1] is not False or len(reply) != 4 or {type(part) for part in reply[2:]} != {str}:
            self._down("tampered", "the program's answer is neither a result nor an exception")
        self.blamed = _exception(reply[2], reply[3])
        raise self.blamed

    def _down(self, verdict: str, message: str) -> NoReturn:
        self.broken = (verdict, message)
        raise LineDown(verdict, message)

    def _remote(self, number: int) -> Remote:
        if number not in self._remotes:
            self._remotes[number] = Remote(self, number)
        return self._remotes[number]


def _number_of(value: object) -> int:
    if type(value) is Remote and value.attribute_ is None:
        return value.number_
    raise TypeError(f"a test can't pass {type(value).__name__} objects into the sandbox: plain data or what came from there")


def _exception(name: str, message: str) -> BaseException:
    """Build the builtin exception of this name, else a RuntimeError that holds it."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError and its like take more
            pass
    return RuntimeError(f"{name}: {message}")


def judge(payload: bytes, line_descriptor: int, report_descriptor: int) -> None:
    """Run the tests of a payload {nonce, setup, tests} one after the other, and report the end of each."""
    task = json.loads(payload)
    line = Line(line_descriptor)
    program.open_streams()
    namespace = program.fresh_main()

    def report(event: str, verdict: str = "", message: str = "", seconds: float = 0.0) -> None:
        said = {"nonce": task["nonce"], "event": event, "verdict": verdict, "message": message[:500], "seconds": seconds}
        os.write(report_descriptor, json.dumps(said).encode() + b"\n")

    try:
        snippets = [_compiled(test, f"test {number}") for number, test in enumerate(task["tests"])]
        setup, declared = _compiled(task["setup"], "setup"), declarations(task["setup"])
    except (SyntaxError, ValueError) as error:
        report("invalid", message=f"setup or a test is no valid Python: {error}")
        return
    failure = _run(line, lambda: _load(line, setup, declared, namespace))
    if failure is not None:
        verdict, message, ours = failure
        report("invalid" if ours else "unloadable", verdict, message)
        return
    report("loaded")
    for snippet in snippets:
        began = time.monotonic()
        failure = _run(line, lambda snippet=snippet: exec(snippet, namespace))  # noqa: S102  # trusted, in this process
        verdict, message, _ = failure or ("passed", "", False)
        report("test", verdict, message, time.monotonic() - began)
        if line.broken is not None or (verdict != "passed" and task["stop_at_failure"]):
            return


def _load(line: Line, setup: Any, declared: dict[str, bool], namespace: dict[str, Any]) -> None:
    names = line.loaded()
    ours = {name for name, is_stub in declared.items() if not is_stub}
    stubs = declared.keys() - ours
    theirs = {name: value for name, value in names.items() if name in stubs or not (name in ours or hasattr(builtins, name))}
    theirs = {name: value for name, value in theirs.items() if not name.startswith("_")}
    namespace.update(theirs)
    exec(setup, namespace)  # noqa: S102  # trusted
    namespace.update({name: value for name, value in theirs.items() if name in stubs})


def declarations(setup: str) -> dict[str, bool]:
    """Return the names that setup binds at its top level, each with whether it only declares it: a function without a body."""
    found: dict[str, bool] = {}
    for node in ast.parse(setup).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = all(_says_nothing(line) for line in node.body)
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found[inner.id] = False
            elif isinstance(inner, ast.alias):
                found[inner.asname or inner.name.partition(".")[0]] = False
            elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[inner.name] = False
    return found


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Pass, ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _run(line: Line, work: Any) -> tuple[str, str, bool] | None:
    """Do trusted work; return the verdict, the message, and whether the fault can't be the program's; None where it ended
    well."""
    try:
        work()
        line.check()
    except LineDown:
        pass
    except BaseException as error:  # noqa: BLE001  # however a test ends, that is its result
        if line.broken is None:
            verdict = "oom" if isinstance(error, MemoryError) else "failed"
            return verdict, _describe(error), error is not line.blamed
    if line.broken is None:
        return None
    return (*line.broken, False)


def _describe(error: BaseException) -> str:
    """Return an exception in one line, an assertion with its source."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # integers of more than 4300 digits do not print
        text = ""
    if not isinstance(error, AssertionError):
        return f"{type(error).__name__}: {text}".removesuffix(": ")
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "AssertionError"
    source = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno).strip()
    return f"AssertionError: {text}: {source}" if text and text not in source else f"AssertionError: {source}"


def _compiled(snippet: str, name: str) -> Any:
    linecache.cache[f"<{name}>"] = (len(snippet), None, snippet.splitlines(keepends=True), f"<{name}>")
    return compile(snippet, f"<{name}>", "exec", dont_inherit=True)
