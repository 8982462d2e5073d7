"""What a program may read and write, enforced by the kernel's Landlock.

Invariants: writing is possible in the program's own directory and on /dev/null only, reading where it is listed; rights that this
kernel does not know are left out, never an error.
"""

# ruff: noqa: PTH112  # single system calls: below what pathlib covers
from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from reward_loop.sandbox.inside import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_CHANGE_DIRECTORY = sum(1 << bit for bit in range(4, 13))
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_TCP = 3
_SIGNALS_AND_ABSTRACT_SOCKETS = 3


def version() -> int:
    """Return the version of Landlock that this kernel offers; 0 for none."""
    try:
        return kernel.call("landlock_create_ruleset", kernel.LANDLOCK_CREATE, 0, 0, 1)
    except OSError:
        return 0


def restrict(own: str, readable: Iterable[str]) -> None:
    """Restrict this process, and all that it will start, to reading `readable` and writing below `own`."""
    abi = version()
    if not abi:
        return
    everything = _known(abi)
    ruleset = _create(abi, everything)
    try:
        for path in readable:
            _allow(ruleset, path, _READ & everything)
        _allow(ruleset, own, everything & ~_DEVICE_CONTROL)
        _allow(ruleset, "/dev/null", (_READ_FILE | _WRITE_FILE | _TRUNCATE) & everything)
        kernel.call("landlock_restrict_self", kernel.LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _known(abi: int) -> int:
    later = (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_DEVICE_CONTROL if abi >= 5 else 0)
    return _READ | _WRITE_FILE | _CHANGE_DIRECTORY | later


def _create(abi: int, files: int) -> int:
    fields = [files] + ([_TCP] if abi >= 4 else []) + ([_SIGNALS_AND_ABSTRACT_SOCKETS] if abi >= 6 else [])
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    return kernel.call("landlock_create_ruleset", kernel.LANDLOCK_CREATE, attributes, 8 * len(fields), 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what is not there, or not for this user, needs no leave
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_A_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, beneath))
        kernel.call("landlock_add_rule", kernel.LANDLOCK_ADD, ruleset, 1, rule, 0)
    finally:
        os.close(beneath)
