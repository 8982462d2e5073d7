"""An update of a running pipeline: a part of a configuration, checked whole against the one that it changes.

    {"per_turn": [{"name": "shaping", "weight": 0.5}], "apply": "next_reset"}      as a configuration, with what changes
    {"weights": {"shaping": 0.5}, "enabled": {"style": false}}                      by name, since names are unique

`parse_update` is pure. Invariants: an update names rubrics that exist and changes only weights, switches and the settings that
a rubric lists as updateable; what else it repeats must be as it is; the code of a rubric can't be named by a client, for
importing what a client names would be running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from reward_loop.rubrics.entry_fields import CHECKS, flag_of, settings_of, weight_of
from reward_loop.rubrics.refusal import refused, unknown
from reward_loop.rubrics.reward_config import PHASES, Phase, RewardConfig, RubricEntry
from reward_loop.rubrics.schema_version import check_update_version

Applies: TypeAlias = Literal["next_reset", "immediate"]

APPLIES: tuple[Applies, ...] = ("next_reset", "immediate")
"""When an update takes effect: for episodes that begin after it, or in running ones too, from their next step on."""

BY_NAME = ("weights", "enabled", "config")
UPDATE_KEYS = ("schema_version", *PHASES, *BY_NAME, "apply", "config_version")
"""What an update may hold; `config_version` is the one that it is made for, as GET /config states it."""

Updateable: TypeAlias = Mapping[str, frozenset[str]]
"""The settings of each rubric, by name, that may change while it runs."""


@dataclass(frozen=True, slots=True)
class Changes:
    """New values by the name of the rubric."""

    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    enabled: Mapping[str, bool] = field(default_factory=dict[str, bool])
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Only the settings that change."""

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return the parts that hold something."""
        parts: dict[str, Mapping[str, Any]] = {"weights": self.weights, "enabled": self.enabled, "config": self.config}
        return {name: dict(part) for name, part in parts.items() if part}

    def __bool__(self) -> bool:
        return bool(self.weights or self.enabled or self.config)


@dataclass(frozen=True, slots=True)
class Update:
    """What a client asks for, checked."""

    changes: Changes
    apply: Applies | None = None
    config_version: int | None = None


def parse_update(body: object, config: RewardConfig, updateable: Updateable) -> Update:
    """Check an update of `config`; ConfigRefused (with its code) or SchemaVersionError if any part of it is wrong."""
    if not isinstance(body, Mapping):
        raise refused("bad_shape", f"an update is an object with some of {', '.join(UPDATE_KEYS)}; it is {body!r:.200}")
    for key in body:
        if key not in UPDATE_KEYS:
            raise unknown("unknown_key", "key of an update", key, UPDATE_KEYS)
    check_update_version(body.get("schema_version"))
    reader = _Reader(config, updateable)
    for phase in PHASES:
        for number, part in enumerate(_list(body.get(phase), phase)):
            reader.entry(phase, part, f"{phase}[{number}]")
    for key in BY_NAME:
        for name, value in _mapping(body.get(key, {}), key).items():
            reader.by_name(key, name, value)
    return Update(reader.changes(), _apply(body.get("apply")), _version(body.get("config_version")))


def updated(config: RewardConfig, changes: Changes) -> RewardConfig:
    """Return the configuration with these changes."""

    def entry(old: RubricEntry) -> RubricEntry:
        return replace(
            old,
            weight=changes.weights.get(old.name, old.weight),
            enabled=changes.enabled.get(old.name, old.enabled),
            config={**old.config, **changes.config.get(old.name, {})},
        )

    per_turn, episode_end = ([entry(old) for old in getattr(config, phase)] for phase in PHASES)
    return RewardConfig(config.schema_version, per_turn, episode_end)


def changes_between(old: RewardConfig, new: RewardConfig) -> Changes:
    """Return what leads from one configuration to another of the same rubrics, without what is equal."""
    before = {entry.name: entry for _, entry in old.entries()}
    pairs = [(before[entry.name], entry) for _, entry in new.entries()]
    settings = {
        entry.name: {key: value for key, value in entry.config.items() if not _same(was.config, key, value)}
        for was, entry in pairs
    }
    return Changes(
        {entry.name: entry.weight for was, entry in pairs if entry.weight != was.weight},
        {entry.name: entry.enabled for was, entry in pairs if entry.enabled != was.enabled},
        {name: changed for name, changed in settings.items() if changed},
    )


class _Reader:
    """Collects what an update says of each rubric, each thing once."""

    def __init__(self, config: RewardConfig, updateable: Updateable) -> None:
        self._entries: dict[str, tuple[Phase, RubricEntry]] = {entry.name: (phase, entry) for phase, entry in config.entries()}
        self._updateable = updateable
        self._said: dict[str, dict[str, Any]] = {key: {} for key in BY_NAME}

    def changes(self) -> Changes:
        return Changes(**self._said)

    def entry(self, phase: Phase, part: object, where: str) -> None:
        """Take in an entry of a phase's list: its name, and what changes or stays."""
        given = _mapping(part, where)
        if "name" not in given:
            raise refused("bad_shape", f"{where} has no name; say which rubric it is")
        there, entry = self._find(given["name"], where)
        if there != phase:
            raise refused("unknown_rubric", f"{where}: the rubric {entry.name!r} is not in {phase}; it is in {there}")
        for key, value in given.items():
            if key not in CHECKS:
                raise unknown("unknown_key", f"setting of {where}", key, CHECKS)
            if key in ("weight", "enabled", "config"):
                self._say("weights" if key == "weight" else key, entry, value, f"{where}.{key}")
            elif CHECKS[key](value, f"{where}.{key}") != getattr(entry, key):
                raise refused(
                    "not_updateable", f"{where}.{key} can't change while the pipeline runs: {entry.name!r} was built with it"
                )

    def by_name(self, key: str, name: object, value: object) -> None:
        """Take in one item of `weights`, `enabled` or `config`."""
        _, entry = self._find(name, key)
        self._say(key, entry, value, f"{key}.{entry.name}")

    def _find(self, name: object, where: str) -> tuple[Phase, RubricEntry]:
        if not isinstance(name, str) or name not in self._entries:
            raise unknown("unknown_rubric", f"rubric for {where} called", name, self._entries)
        return self._entries[name]

    def _say(self, key: str, entry: RubricEntry, value: object, where: str) -> None:
        if entry.name in self._said[key]:
            raise refused("duplicate", f"{where}: this update says it of {entry.name!r} twice; say it once")
        if key == "weights":
            self._said[key][entry.name] = weight_of(value, where)
        elif key == "enabled":
            self._said[key][entry.name] = flag_of(value, where)
        else:
            self._said[key][entry.name] = self._settings(entry, value, where)

    def _settings(self, entry: RubricEntry, value: object, where: str) -> dict[str, Any]:
        may = self._updateable.get(entry.name, frozenset())
        settings = settings_of(value, where)
        for key, setting in settings.items():
            if key not in may and not _same(entry.config, key, setting):
                listed = f"its updateable settings are {', '.join(sorted(may))}" if may else "none of its settings can"
                raise refused("not_updateable", f"{where}.{key} can't change while the pipeline runs: {listed}")
        return settings


def _same(config: Mapping[str, Any], key: str, value: object) -> bool:
    # True == 1 in Python, which a rubric reads otherwise; 1 and 1.0 are one number to JSON.
    return key in config and config[key] == value and isinstance(config[key], bool) == isinstance(value, bool)


def _list(value: object, where: str) -> Iterable[object]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise refused("bad_shape", f"{where} must be a list of rubrics; it is {value!r:.200}")
    return value


def _mapping(value: object, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise refused("bad_shape", f"{where} must be an object; it is {value!r:.200}")
    return value


def _apply(value: object) -> Applies | None:
    for name in APPLIES:
        if name == value:
            return name
    if value is not None:
        raise refused("bad_value", f"apply must be one of {', '.join(APPLIES)}; it is {value!r:.200}")
    return None


def _version(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise refused("bad_value", f"config_version must be a whole number; it is {value!r:.200}")
    return value
