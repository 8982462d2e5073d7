"""Which levels of isolation this machine offers, and what the others lack.

Invariant: what is reported was tried, not guessed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reward_loop.config import SandboxConfig
from reward_loop.errors import ConfigError, SandboxError
from reward_loop.sandbox.interpreter import Interpreter, closed_to_others, find_interpreter, open_bundle

_REMEDIES = {
    "machine": "use a machine of a known kind, or sandbox_fusion.url",
    "user": "run as root (in a container, with the capabilities SETUID, SETGID and KILL) to give each program a user of its own",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER; a container's own profile must allow prctl(PR_SET_SECCOMP)",
    "landlock": "boot with Linux 5.13 or newer and landlock in lsm=; without it programs read and write what everyone may",
    "namespaces": "run as root with CAP_SYS_ADMIN, or allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0)",
    "cgroup": "make this process's control group writable (delegate it); without it memory is bounded per process only",
    "bwrap": "install it (apt-get install bubblewrap) and allow unprivileged user namespaces",
}
_NAMES = {
    "user": "a user of its own",
    "seccomp": "seccomp",
    "landlock": "landlock",
    "namespaces": "namespaces",
    "cgroup": "cgroup",
    "bwrap": "bubblewrap",
    "machine": "this machine's architecture",
}
_OF_LEVEL: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("user", "seccomp", "landlock"),
    2: ("user", "seccomp", "landlock", "namespaces", "cgroup"),
    3: ("user", "seccomp", "landlock", "bwrap"),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """What this machine offers: the levels, and one line per missing mechanism that says what to do about it."""

    levels: tuple[int, ...]
    missing: tuple[str, ...]
    interpreter: Interpreter
    mechanisms: frozenset[str]

    def describe(self, level: int) -> str:
        """Return a level in words, such as "level 1: own user, seccomp, landlock"."""
        present = [_NAMES[name].replace("a user of its own", "own user") for name in _OF_LEVEL[level] if name in self.mechanisms]
        return f"level {level}: {', '.join(present) or 'resource limits'}"


def probe(config: SandboxConfig) -> Probe:
    """Try what this machine offers; raises ConfigError where there is no interpreter for programs."""
    interpreter = find_interpreter(config.python)
    faults = _tried(interpreter)
    lines = tuple(f"{_NAMES[name]} is missing: {fault}; {_REMEDIES[name]}" for name, fault in faults.items() if fault)
    working = frozenset(name for name, fault in faults.items() if not fault)
    return Probe(tuple(_levels(working)), lines, interpreter, working)


def _levels(working: frozenset[str]) -> list[int]:
    needed = {0: {"machine"}, 1: {"user", "seccomp"}, 2: {"seccomp", "namespaces"}, 3: {"seccomp", "bwrap"}}
    return [level for level, names in needed.items() if names | {"machine"} <= working]


def choose_level(config: SandboxConfig, found: Probe) -> int:
    """Return the level to use; raises ConfigError where this machine does not offer it, or it is below sandbox.min_level."""
    level = config.level if config.level is not None else max((level for level in found.levels if level <= 2), default=0)
    lacking = " ".join(f"[{line}]" for line in found.missing)
    if level not in found.levels:
        raise ConfigError(f"sandbox.level={level}: this machine offers the levels {list(found.levels)}. {lacking}")
    if level < config.min_level:
        raise ConfigError(
            f"sandbox.min_level={config.min_level}: programs would run at level {level}; set sandbox.level to one of "
            f"{[offer for offer in found.levels if offer >= config.min_level]}, lower sandbox.min_level where programs can be "
            f"trusted that far, use sandbox_fusion.url, or mend what is missing. {lacking}"
        )
    return level


def bubblewrap_path() -> str | None:
    """Return where bubblewrap is installed."""
    return shutil.which("bwrap")


def make_base() -> str:
    """Make the directory that a sandbox keeps its programs' directories in, where every user may pass through."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108
    for place in places:
        if closed_to_others(place) is None and os.access(place, os.W_OK):
            base = tempfile.mkdtemp(prefix="reward-loop-sandbox-", dir=place)
            Path(base).chmod(0o711)
            return base
    raise ConfigError(
        f"a sandbox needs a writable directory that every user may pass through; {places} are none: set TMPDIR to one"
    )


def _tried(interpreter: Interpreter) -> Mapping[str, str]:
    bundle, base = open_bundle(), make_base()
    settings = {"main": "reward_loop.sandbox.inside.trial", "base": base, "bwrap": bubblewrap_path()}
    command = [*interpreter.command(), str(bundle), json.dumps({**settings, "readable": interpreter.folders})]
    try:
        done = subprocess.run(command, pass_fds=[bundle], env={}, cwd="/", capture_output=True, check=True, timeout=60)  # noqa: S603
        faults: Mapping[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or b""
        raise SandboxError(
            f"{interpreter.path} could not try what this machine offers: {error} {said.decode()[-1000:]}"
        ) from error
    finally:
        os.close(bundle)
        Path(base).rmdir()
    return faults
