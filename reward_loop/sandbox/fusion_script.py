"""The text that a SandboxFusion service runs to test a program: a tester, and the program in a process of its own below it.

The tester reads the tests, and a nonce that marks its results, from standard input, where the program can't; both are those of
the sandbox of this machine (`reward_loop.sandbox.inside`), whose text `SOURCES` brings along. Results go to standard output
as soon as they are there.

Invariants: this file is sent as text: it imports the standard library only and runs on Python 3.9; whatever the program sends or
does ends one test, never the tester.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

SOURCES: dict[str, str] = {}
"""Text of the modules by their names, in the order of their imports; filled in before this file is sent."""

Request = dict[str, Any]


def load_modules() -> dict[str, ModuleType]:
    """Make the modules of SOURCES importable and return them by the last part of their names."""
    modules: dict[str, ModuleType] = {}
    for name, text in SOURCES.items():
        module = sys.modules[name] = ModuleType(name)
        package, _, last = name.rpartition(".")
        if package:
            setattr(sys.modules[package], last, module)
        module.__dict__["__path__"] = []
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own text
        modules[last] = module
    return modules


class Round:
    """One start of the program, and the tests that are run until it can't go on."""

    def __init__(self, request: Request, results: int) -> None:
        self._request = request
        self._results = results
        self._late = False
        self._told = False
        self.ended = 0
        """Tests whose results were reported."""
        self.over = False
        """Whether there is nothing more to run."""

    def run(self, judge: Any) -> None:
        """Run the tests and report each."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, os.path.abspath(__file__), str(theirs.fileno()), str(self._request["memory_mb"])]  # noqa: PTH100
        nowhere = subprocess.DEVNULL
        program = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        reports, report = os.pipe()
        relay = threading.Thread(target=self._relay, args=(reports, program, ours.dup()), daemon=True)
        relay.start()
        try:
            with contextlib.suppress(OSError), program.stdin or contextlib.nullcontext() as stdin:
                stdin.write(self._request["source"].encode("utf-8", "surrogatepass"))  # type: ignore[union-attr]
            judge(json.dumps(self._request).encode(), ours.detach(), report)
        finally:
            os.close(report)
            relay.join()
            os.close(reports)
            kill(program)

    def _relay(self, reports: int, program: subprocess.Popen[bytes], line: socket.socket) -> None:
        """Pass on what the judge reports; kill the program, and hang up for the judge, where that takes too long."""
        buffer = b""
        while True:
            if not select.select([reports], [], [], self._request["wall_s"])[0]:
                self._late = True
                kill(program)
                line.shutdown(socket.SHUT_RDWR)  # a process that left the program's session may hold the other end
                continue
            chunk = os.read(reports, 1 << 16)
            if not chunk:
                line.close()
                return
            *whole, buffer = (buffer + chunk).split(b"\n")
            for said in whole:
                self._pass_on(json.loads(said))

    def _pass_on(self, said: dict[str, Any]) -> None:
        if self._late:
            if self._told:  # of tests that the program, killed by now, never had time for
                return
            self._told = True
            if said["verdict"] != "passed":
                said.update(verdict="timeout", message=f"not done within {self._request['wall_s']} s")
            if said["event"] == "loaded":
                said["event"] = "unloadable"
        self.ended += said["event"] == "test"
        self.over |= said["event"] in ("invalid", "unloadable")
        self.over |= said["event"] == "test" and said["verdict"] != "passed" and self._request["stop_at_failure"]
        os.write(self._results, json.dumps(said).encode() + b"\n")


def kill(program: subprocess.Popen[bytes]) -> None:
    """Kill the program and what it started in its session."""
    with contextlib.suppress(OSError):
        os.killpg(program.pid, 9)
    program.kill()
    program.wait()


def hide_memory() -> None:
    """Keep processes of the same user out of this one's memory and descriptors, where the system can."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def be_the_tester() -> None:
    """Read one request from standard input and write its results to standard output."""
    hide_memory()
    request: Request = json.loads(sys.stdin.readline())
    judge = load_modules()["tester"].judge
    results = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the tests print is no result
    os.write(results, json.dumps({"nonce": request["nonce"], "event": "ready"}).encode() + b"\n")
    tests = request["tests"]
    while tests:
        part = Round({**request, "tests": tests}, results)
        part.run(judge)
        if part.over or not part.ended:
            break
        tests = tests[part.ended :]


def be_the_program(descriptor: int, memory_mb: int) -> None:
    """Define what the source on standard input defines, and answer calls of it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    source = sys.stdin.buffer.read()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    load_modules()["served"].serve(source, descriptor)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        be_the_program(int(sys.argv[1]), int(sys.argv[2]))
    else:
        be_the_tester()
