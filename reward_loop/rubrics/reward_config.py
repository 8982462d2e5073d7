"""The configuration of a reward pipeline: which rubrics judge each turn and which the end, and what each weighs (seed 004).

Invariants: a configuration that exists is valid, and is not changed: updates give another one. It holds what JSON can hold, so
that what `as_dict` returns, `load` takes. Whatever is wrong is one error that names every place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from reward_loop.config_layers import read_layer
from reward_loop.errors import ConfigError, SchemaVersionError
from reward_loop.rubrics.entry_fields import CHECKS, OnError
from reward_loop.rubrics.refusal import ConfigRefused, all_of, refused, unknown
from reward_loop.rubrics.schema_version import check_schema_version

Phase: TypeAlias = Literal["per_turn", "episode_end"]

PHASES: tuple[Phase, ...] = ("per_turn", "episode_end")
"""When rubrics are evaluated, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class RubricEntry:
    """One rubric of a pipeline. Raises ConfigRefused that lists every field that is wrong."""

    name: str
    """What logs and updates call it."""
    rubric: str
    """Its code: a registered name, `builtin.…`, `path/to/file.py:name`, or a class path below an allowed prefix."""
    weight: float = 1.0
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The rubric's own settings; `scale` ([lowest, highest]) is the composer's."""
    enabled: bool = True
    on_error: OnError = "raise"
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        problems = list[ConfigRefused]()
        for name, check in CHECKS.items():
            try:
                object.__setattr__(self, name, check(getattr(self, name), name))
            except ConfigRefused as problem:
                problems.append(problem)
        if problems:
            raise all_of(problems)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, in containers of the caller's own."""
        return {name: copy.deepcopy(getattr(self, name)) for name in CHECKS}


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A pipeline's rubrics in order; no two have one name, also of different phases."""

    schema_version: str = "1.0"
    per_turn: Sequence[RubricEntry] = ()
    """Evaluated at every step."""
    episode_end: Sequence[RubricEntry] = ()
    """Evaluated when an observation is done."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema_version", check_schema_version(self.schema_version))
        for phase in PHASES:
            object.__setattr__(self, phase, tuple(getattr(self, phase)))
        names = [entry.name for _, entry in self.entries()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise refused(
                "duplicate", f"several rubrics are called {', '.join(twice)}; a name is one rubric's, also across phases"
            )

    @classmethod
    def load(cls, source: RewardConfig | Mapping[str, Any] | DictConfig | str | Path) -> RewardConfig:
        """Read a YAML file or a mapping (a config is returned as it is).

        Raises ConfigError that lists everything that is wrong, and SchemaVersionError for a file of another version.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str | Path):
            return _read(Path(source).name, lambda: _plain(read_layer(source, 1).tree))
        if isinstance(source, DictConfig):
            return _read("", lambda: _plain(source))
        if isinstance(source, Mapping):
            return _parsed(source)
        raise ConfigError(f"a reward configuration is a YAML file's path or a mapping; got {source!r:.200}")

    def entries(self) -> Iterator[tuple[Phase, RubricEntry]]:
        """Yield every entry with its phase, in order."""
        for phase in PHASES:
            entries: Sequence[RubricEntry] = getattr(self, phase)
            for entry in entries:
                yield phase, entry

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data of the caller's own: what GET /config answers."""
        shown: dict[str, Any] = {"schema_version": self.schema_version}
        for phase in PHASES:
            shown[phase] = [entry.as_dict() for entry in getattr(self, phase)]
        return shown


_KEYS = [field.name for field in fields(RewardConfig)]
JUDGES_KEY = "mcp_services"
"""What a file may hold besides: the judges' services, which are no part of the configuration."""


def _plain(tree: DictConfig) -> Any:
    try:
        return OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).partition("\n")[0]) from error


def _read(name: str, read: Callable[[], Any]) -> RewardConfig:
    start = f"{name}: " if name else ""
    try:
        return _parsed(read())
    except SchemaVersionError as error:
        raise SchemaVersionError(f"{start}{error.message}", expected=error.expected, got=error.got) from None
    except ConfigRefused as error:
        raise refused(error.code, f"{start}{error.message}") from None


def _parsed(given: Mapping[str, Any]) -> RewardConfig:
    problems = [unknown("unknown_key", "setting", key, _KEYS) for key in given if key not in (*_KEYS, JUDGES_KEY)]
    version = check_schema_version(given.get("schema_version"))
    phases = {phase: _entries(given.get(phase), phase, problems) for phase in PHASES}
    if problems:
        raise all_of(problems)
    return RewardConfig(version, **phases)


def _entries(given: object, phase: Phase, problems: list[ConfigRefused]) -> list[RubricEntry]:
    entries = list[RubricEntry]()
    if given is not None and not isinstance(given, list | tuple):
        problems.append(refused("bad_shape", f"{phase} must be a list of rubrics; it is {given!r:.200}"))
        return entries
    for number, fields_given in enumerate(given or ()):
        try:
            entries.append(_entry(fields_given))
        except ConfigRefused as problem:
            problems.append(refused(problem.code, f"{phase}[{number}]: {problem.message}"))
    return entries


def _entry(given: object) -> RubricEntry:
    if not isinstance(given, Mapping):
        raise refused("bad_shape", f"a rubric is a mapping with name and rubric; it is {given!r:.200}")
    problems = [unknown("unknown_key", "setting", key, CHECKS) for key in given if key not in CHECKS]
    missing = [refused("bad_shape", f"{key} is missing") for key in ("name", "rubric") if key not in given]
    entry = None
    if not missing:
        try:
            entry = RubricEntry(**{key: value for key, value in given.items() if key in CHECKS})
        except ConfigRefused as problem:
            problems.append(problem)
    if entry is None or problems:
        raise all_of(problems + missing)
    return entry
