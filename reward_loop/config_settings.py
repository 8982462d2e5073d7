"""Which value each setting gets, and from where: layers in, settings and problems out.

Invariants: of two layers the later wins, whatever spelling each used; within one layer two spellings must agree, and
null yields to a value; a null that a setting can't take puts it back to its default. Only keys that the reward loop
reads are resolved, so that the rest of a trainer's config may hold interpolations and missing values of its own.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from reward_loop.config_layers import Layer
from reward_loop.config_spellings import FOREIGN, SCHEMA, SHARED, SPELLINGS, kind_of, schema_key_of

# Keys as OmegaConf allows them: below an open setting they may be numbers.
Path: TypeAlias = tuple[Any, ...]

_MISSING = "???"


def dotted(path: Path) -> str:
    """Write a path as users do."""
    return ".".join(map(str, path))


def overlap(one: Path, other: Path) -> bool:
    """Tell whether two paths are the same or one lies below the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of one key, as somebody wrote it."""

    key: Path
    """What it sets, in the schema's names; for an unused key what was written."""
    spelling: Path
    value: Any
    source: str

    def __str__(self) -> str:
        return f"{dotted(self.spelling)}={self.value!r} ({self.source})"

    @property
    def origin(self) -> str:
        """The source, with the spelling where it differs from the schema's."""
        spelling = dotted(self.spelling)
        return self.source if spelling == dotted(self.key) else f"{self.source} (as {spelling})"


@dataclass(slots=True)
class Settings:
    """What layers say in total; `add` them in order."""

    merged: DictConfig
    """All layers, merged: what interpolations refer to."""
    chosen: dict[Path, Setting] = field(default_factory=dict[Path, Setting])
    missing: dict[Path, Setting] = field(default_factory=dict[Path, Setting])
    """Where `???` was written."""
    unused: dict[Path, Setting] = field(default_factory=dict[Path, Setting])
    problems: list[str] = field(default_factory=list[str])

    def add(self, layer: Layer) -> None:
        """Put a layer on top."""
        reader = _LayerReader(self, layer.source)
        reader.visit((), OmegaConf.to_container(layer.tree, resolve=False))
        for key in reader.resets:
            self._drop(key)
        for setting in reader.found.values():
            if setting.key not in self.chosen:  # else it takes the old one's place, so that named models keep their order
                self._drop(setting.key)
            self.chosen[setting.key] = setting

    def get(self, key: str) -> Setting | None:
        """The setting that decides a key of the schema, if somebody wrote one."""
        return self.chosen.get(tuple(key.split(".")))

    def tree(self) -> dict[object, Any]:
        """All chosen values, nested as the schema is."""
        root: dict[object, Any] = {}
        for setting in self.chosen.values():
            node = root
            for name in setting.key[:-1]:
                node = node.setdefault(name, {})
            node[setting.key[-1]] = setting.value
        return root

    def _drop(self, key: Path) -> None:
        self.chosen = {other: setting for other, setting in self.chosen.items() if not overlap(key, other)}


@dataclass(slots=True)
class _LayerReader:
    settings: Settings
    source: str
    found: dict[Path, Setting] = field(default_factory=dict[Path, Setting])
    resets: list[Path] = field(default_factory=list[Path])

    def visit(self, path: Path, raw: Any) -> None:
        """Sort what was written at `path` and below."""
        if path and path[-1] == "_target_":  # Hydra's mark of a dataclass
            return
        key = dotted(path)
        match "section" if not path else kind_of(key):
            case "section":
                self._visit_section(path, raw)
            case "setting":
                self._visit_setting(path, tuple(SPELLINGS[key].split(".")), raw)
            case "unused" if raw not in (None, {}):
                self.settings.unused[path] = Setting(path, path, raw, self.source)
            case "unknown":
                self._visit_unknown(path, raw)
            case _:
                pass

    def _visit_section(self, path: Path, raw: Any) -> None:
        value = self._resolve(path, raw)
        key = dotted(path)
        if isinstance(value, dict):
            for name, below in value.items():
                self.visit((*path, name), below)
        elif value is None:
            below = (meant for spelling, meant in SPELLINGS.items() if spelling.startswith(f"{key}."))
            self.resets.extend(tuple(meant.split(".")) for meant in below)
        elif key in SPELLINGS:
            self._set(tuple(SPELLINGS[key].split(".")), path, value)
        else:
            self._problem(path, raw, f"needs a mapping with some of the keys {', '.join(_children(key))}")

    def _visit_setting(self, path: Path, key: Path, raw: Any) -> None:
        if raw == _MISSING:
            self.settings.missing[key] = Setting(key, path, raw, self.source)
            return
        value = self._resolve(path, raw)
        meant = schema_key_of(dotted(key))
        if isinstance(value, dict) and meant is not None and meant.open:
            for name, below in value.items():
                self._visit_setting((*path, name), (*key, name), below)
        elif value is None and meant is not None and not meant.nullable and meant.key == dotted(key):
            self.resets.append(key)
        else:
            self._set(key, path, value)

    def _set(self, key: Path, spelling: Path, value: Any) -> None:
        setting = Setting(key, spelling, value, self.source)
        for other in [other for other in self.found.values() if overlap(key, other.key)]:
            if value is None:
                return  # verl's full configs list every old key as null beside the new one
            if other.value is None:
                del self.found[other.key]
            elif other.value != value or other.key != key:
                self.settings.problems.append(f"{setting} contradicts {other}: they are the same setting; keep one")
                return
        self.found[key] = setting

    def _visit_unknown(self, path: Path, raw: Any) -> None:
        parent, _, name = dotted(path).rpartition(".")
        if dotted(path).partition(".")[0] in SHARED:
            if near := difflib.get_close_matches(name, _children(parent), n=1, cutoff=0.8):
                self._problem(path, raw, f"unknown key; did you mean {parent}.{near[0]}?")
            return
        nearest = _nearest(parent, name)
        remedy = f"did you mean {nearest}?" if nearest else f"known here: {', '.join(_children(parent))}"
        self._problem(path, raw, f"unknown key; {remedy}")

    def _resolve(self, path: Path, raw: Any) -> Any:
        """Replace interpolations; `raw` itself where there are none or a later layer has put something else there."""
        if "${" not in str(raw) or isinstance(raw, dict):
            return raw
        node: Any = self.settings.merged
        try:
            for name in path:
                if not isinstance(node, DictConfig) or name not in node:
                    return raw
                node = node[name]
            return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        except OmegaConfBaseException as error:
            self._problem(path, raw, f"can't be resolved: {str(error).partition(chr(10))[0]}")
            return None

    def _problem(self, path: Path, raw: Any, text: str) -> None:
        self.settings.problems.append(f"{Setting(path, path, raw, self.source)}: {text}")


def _children(section: str) -> list[str]:
    """Names directly below a section; for the top level the reward loop's own groups."""
    prefix = f"{section}." if section else ""
    names = (key.removeprefix(prefix).partition(".")[0] for key in SPELLINGS if key.startswith(prefix))
    return list(dict.fromkeys(names))


def _nearest(parent: str, name: str) -> str | None:
    """Find the key that an unknown one was meant to be: a neighbour, a namesake elsewhere, or one that looks alike."""
    prefix = f"{parent}." if parent else ""
    neighbours = _children(parent) if parent else [*_children(parent), *FOREIGN]
    if near := difflib.get_close_matches(name, neighbours, n=1):
        return prefix + near[0]
    tree = [key for key in SPELLINGS if key.startswith(f"{parent.partition('.')[0]}.")] if parent else list(SCHEMA)
    namesakes = [key for key in tree if key.endswith(f".{name}")]
    alike = difflib.get_close_matches(prefix + name, namesakes or tree, 1, 0.0 if namesakes else 0.8)
    return alike[0] if alike else None
