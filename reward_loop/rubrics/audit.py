"""The file in which every change of a live configuration is written down before it holds: one line of JSON each.

    {"version": 1, "time": …, "who": "start", "old": {}, "new": {"weights": {"a": 1.0}, …}, "applies": "immediate", "base": {…}}
    {"version": 2, "time": …, "who": …, "old": {"weights": {"a": 1.0}}, "new": {"weights": {"a": 0.5}}, "applies": "next_reset"}

Invariants: a change that was answered with ok is on disk, so that a process that is killed and started again goes on from it; a
line that was cut off in the middle was never answered, and is dropped; the changes of one configuration are never laid over
another one, as a file edited meanwhile is.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.rubrics.live_config import FIRST_VERSION, Change, LiveConfig
from reward_loop.rubrics.reward_config import RewardConfig
from reward_loop.rubrics.update import Changes

logger = logging.getLogger(__name__)


def keep_audit(live: LiveConfig, path: Path, *, now: float) -> None:
    """Have a live configuration go on from what a file recorded, if there is one, and record its changes there from now on.

    Raises ConfigError for a file that can't be read or written, or that belongs to another configuration than that of `live`.
    """
    try:
        if lines := _read(path):
            _refuse_another(lines[0].get("base"), live.base, path)
            live.replay(change for change in _changes(lines, path) if change.version > live.latest_version)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _append(path, {**_line(_start(live.base, now)), "base": live.base.as_dict()})
    except OSError as error:
        raise ConfigError(f"{path}: the audit can't be kept there ({error.strerror}); choose another path") from error
    live.record = lambda change: _append(path, _line(change))


def read_audit(path: Path) -> list[Change]:
    """Return the changes that a file records, oldest first; the first one is the start."""
    return list(_changes(_read(path), path))


def _start(config: RewardConfig, now: float) -> Change:
    entries = [entry for _, entry in config.entries()]
    begun = Changes({entry.name: entry.weight for entry in entries}, {entry.name: entry.enabled for entry in entries})
    return Change(FIRST_VERSION, now, "start", Changes(), begun, "immediate")


def _line(change: Change) -> dict[str, Any]:
    return {
        "version": change.version,
        "time": change.time,
        "who": change.who,
        "old": change.old.as_dict(),
        "new": change.new.as_dict(),
        "applies": change.applies,
    }


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Write one line and wait until it is on disk."""
    data = json.dumps(line, allow_nan=False).encode() + b"\n"
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, "no room for the whole line", str(path))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)  # half a line would make the next one unreadable
            raise


def _read(path: Path) -> list[dict[str, Any]]:
    """Read whole lines, and cut off what is left of one that was not finished."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        logger.warning(
            "%s: the last line was cut off (%r) and is dropped; nobody was told that it holds", path, content[whole:][:200]
        )
        os.truncate(path, whole)
    return [_parsed(line, path, number) for number, line in enumerate(content[:whole].splitlines(), start=1)]


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{path}, line {number} is no JSON ({error}); repair it, or move the file away to begin anew") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{path}, line {number} is no change but {line!r:.200}; move the file away to begin anew")
    return parsed


def _changes(lines: list[dict[str, Any]], path: Path) -> Iterator[Change]:
    for number, line in enumerate(lines, start=1):
        try:
            old, new = Changes(**line["old"]), Changes(**line["new"])
            yield Change(line["version"], line["time"], line["who"], old, new, line["applies"])
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number} is no change ({error!r}); move the file away to begin anew") from None


def _refuse_another(base: object, config: RewardConfig, path: Path) -> None:
    if base != (ours := config.as_dict()):
        raise ConfigError(
            f"{path} records the changes of another configuration ({_difference(base, ours)}); move it away to begin anew, "
            "or give the configuration with which it began"
        )


def _difference(one: object, other: object, where: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(_difference(one[key], other[key], f"{where}.{key}") for key in one if one[key] != other[key])
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(_difference(a, b, f"{where}[{number}]") for number, (a, b) in pairs if a != b)
    return f"{where.removeprefix('.') or 'it'} is {one!r:.200} there and {other!r:.200} here"
