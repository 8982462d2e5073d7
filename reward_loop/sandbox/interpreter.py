"""The interpreter that programs run on, and how our modules reach it.

Invariants: an unprivileged user can read and execute it; it gets the text of our modules through a descriptor, because that
user may be unable to read the package's files.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reward_loop.errors import ConfigError, SandboxError

OLDEST = (3, 9)
# In the order of their imports.
_MODULES = (
    "kernel", "seccomp", "landlock", "directories", "users", "cgroup", "view", "confine", "codec", "channel", "program", "served",
    "tester", "launch", "bubblewrap", "nursery", "keeper", "trial",
)  # fmt: skip
_PACKAGE = "reward_loop.sandbox.inside"
# Arguments: the descriptor of the bundle, and settings whose `main` names the module to run.
_BOOT = """
import json, os, sys, types
fd = int(sys.argv[1])
names = set()
for name, text in json.loads(os.pread(fd, os.fstat(fd).st_size, 0)):
    parts = name.split(".")
    for parent in (".".join(parts[:n]) for n in range(1, len(parts))):
        sys.modules.setdefault(parent, types.ModuleType(parent)).__path__ = []
    module = sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[".".join(parts[:-1])], parts[-1], module)
    exec(compile(text, "<%s>" % name, "exec"), module.__dict__)
settings = json.loads(sys.argv[2])
sys.modules[settings["main"]].main(settings)
"""
_ASK = """
import json, os, sys
print(json.dumps([sys.version_info[:3], sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.realpath(sys.executable),
os.__file__]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter for programs; `folders` is what it must be able to read."""

    path: str
    version: tuple[int, ...]
    folders: tuple[str, ...]

    def command(self) -> list[str]:
        """Return the beginning of a command that boots our modules; the bundle's descriptor and the settings follow."""
        return [self.path, "-I", "-S", "-E", "-X", "utf8", "-c", _BOOT]


def find_interpreter(wanted: str | None) -> Interpreter:
    """Return the wanted interpreter, or the first that will do; raises ConfigError where none does."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    candidates = [wanted] if wanted is not None else [sys.executable, base, "/usr/local/bin/python3", "/usr/bin/python3"]
    objections: list[str] = []
    for path in dict.fromkeys(candidates):
        interpreter = _examine(path)
        if isinstance(interpreter, Interpreter):
            return interpreter
        objections.append(interpreter)
    raise ConfigError(
        f"sandbox.python={wanted}: no interpreter that an unprivileged user can run ({'; '.join(objections)}); install Python "
        f"{'.'.join(map(str, OLDEST))} or newer where all may read it (apt-get install python3) and name it in sandbox.python"
    )


def _examine(path: str) -> Interpreter | str:
    if (closed := closed_to_others(path)) is not None:
        return closed
    try:
        asked = subprocess.run([path, "-I", "-S", "-E", "-c", _ASK], capture_output=True, check=True, timeout=30, text=True)  # noqa: S603
        version, *folders, executable, library = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"{path} is no Python interpreter: {error}"
    if tuple(version) < OLDEST:
        return f"{path} is Python {'.'.join(map(str, version))}"
    if (closed := closed_to_others(library)) is not None:
        return f"the library of {path}: {closed}"
    own = Path(path).absolute().parent.parent
    environment = [str(own)] if (own / "pyvenv.cfg").exists() else []
    needed = {*folders, *environment, str(Path(executable).parent), str(Path(path).absolute().parent)}
    return Interpreter(path, tuple(version), tuple(sorted(needed)))


def closed_to_others(path: str) -> str | None:
    """Say what keeps an unprivileged user from reading a file; None where nothing does."""
    real = Path(path).resolve()
    if not real.exists():
        return f"{path} does not exist"
    if os.geteuid() != 0:
        return None if os.access(real, os.R_OK) else f"{path} can't be read"
    for part in (*Path(path).absolute().parents, *real.parents, real):
        mode = part.stat().st_mode
        needed = stat.S_IXOTH if part.is_dir() else stat.S_IROTH
        if mode & needed != needed:
            return f"{path}: {part} is closed to other users (mode {stat.S_IMODE(mode):o})"
    return None


@cache
def _texts() -> bytes:
    folder = Path(__file__).parent / "inside"
    return json.dumps([[f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text("utf-8")] for name in _MODULES]).encode()


def open_bundle() -> int:
    """Return a descriptor of our modules' text; the caller closes it."""
    return open_memory("reward-loop-bundle", _texts())


def open_memory(name: str, content: bytes) -> int:
    """Return a descriptor of a read-only file in memory, at its beginning; the caller closes it."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError as error:
        os.close(descriptor)
        raise SandboxError(f"{len(content)} bytes for a program could not be put in memory: {error}") from error
    return descriptor
