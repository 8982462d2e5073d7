"""Running source as the main program of this process, as `python main.py` would.

Invariants: the program finds a fresh __main__ and standard streams, and nothing of ours among its modules; its exit code,
traceback and exit handlers are those of an interpreter of its own.
"""

# ruff: noqa: PTH110, PTH112, PTH120  # single system calls: below what pathlib covers
from __future__ import annotations

import atexit
import builtins
import linecache
import os
import site
import sys
import threading
import traceback
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any

NAME = "main.py"


def prepare() -> None:
    """Make up for what the interpreter left out at its start: exit() and the like, and the packages that are installed for it.

    Start-up files among those packages are not run: they would run with our privileges.
    """
    beside = os.path.dirname(os.path.dirname(sys.executable))
    prefixes = [sys.prefix, *([beside] if os.path.exists(f"{beside}/pyvenv.cfg") else [])]
    sys.path += [path for path in site.getsitepackages(prefixes) if os.path.isdir(path)]
    site.setquit()
    site.setcopyright()
    site.sethelper()


def fresh_main(name: str = "__main__") -> dict[str, Any]:
    """Make a new main module, which takes itself for `name`, and return its namespace; our modules are forgotten."""
    for ours in [ours for ours in sys.modules if ours.partition(".")[0] == "reward_loop"]:
        del sys.modules[ours]
    module = ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__=NAME)
    sys.modules["__main__"] = sys.modules[name] = module
    sys.argv = [NAME]
    return module.__dict__


def open_streams() -> None:
    """Bind sys.stdin, stdout and stderr anew to descriptors 0, 1 and 2."""
    for name, descriptor, mode, errors in (
        ("stdin", 0, "r", "surrogateescape"),
        ("stdout", 1, "w", "surrogateescape"),
        ("stderr", 2, "w", "backslashreplace"),
    ):
        stream = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def compiled(source: bytes) -> Any:
    """Compile a program; its lines go where tracebacks look for them."""
    text = source.decode("utf-8", "surrogatepass")
    linecache.cache[NAME] = (len(text), None, text.splitlines(keepends=True), NAME)
    return compile(text, NAME, "exec", dont_inherit=True)


def run(source: bytes) -> int:
    """Run source to its end, exit handlers and other threads included, and return its exit code."""
    code = 0
    open_streams()
    namespace = fresh_main()
    try:
        exec(compiled(source), namespace)  # noqa: S102  # what a sandbox is for
    except SystemExit as exit_:
        code = _exit_code(exit_)
    except BaseException as error:  # noqa: BLE001  # whatever ends a program, an interpreter reports
        code = 1
        _report(error)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads, as at an interpreter's end
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed by the program, or its reader is gone
            stream.flush()
    return code


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None or isinstance(exit_.code, int):
        return (exit_.code or 0) & 0xFF
    with suppress(Exception):  # stderr may be closed
        print(exit_.code, file=sys.stderr)  # noqa: T201
    return 1


def _report(error: BaseException) -> None:
    try:
        trace = _of_the_program(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:  # noqa: BLE001  # a program may have set a hook that fails
        with suppress(Exception):
            traceback.print_exc()


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames above the program's own."""
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    return trace
