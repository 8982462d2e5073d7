"""The layers of a configuration before anything is known about their keys: plain mappings, each with its source.

Invariants: a layer holds dicts, lists and scalars, interpolations unresolved; the caller's objects stay as
they are. Whatever can't be read is a ConfigError that names the file, line or override.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError

LayerLike: TypeAlias = "str | Path | Mapping[str, Any] | DictConfig | RewardLoopConfig"

# What OmegaConf and PyYAML raise on text or values that they can't take; ValueError is a file that is no UTF-8.
PARSE_ERRORS = (OmegaConfBaseException, yaml.YAMLError, ValueError)

_OVERRIDE = re.compile(r"(?:\+\+?)?(?P<key>[\w-]+(?:\.[\w-]+)*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings that came from one place."""

    source: str
    tree: DictConfig


def read_layer(layer: object, position: int) -> Layer:
    """Read one file, mapping or config; `position` (from 1) names those that have no name of their own."""
    if isinstance(layer, str | Path):
        return _read_file(Path(layer).expanduser())
    if isinstance(layer, RewardLoopConfig):
        # Only what was set: a default is no choice, and must not undo one of an earlier layer.
        return _from_mapping(layer.model_dump(exclude_unset=True), f"config {position}")
    if isinstance(layer, DictConfig | Mapping):
        return _from_mapping(layer, f"mapping {position}")
    raise ConfigError(f"layer {position} is {layer!r}; give a YAML file's path, a mapping or a config")


def read_overrides(overrides: Sequence[str]) -> Layer:
    """Read dotted overrides (`a.b=1`, `+a.b=1`, `++a.b=1`); of equal keys the last wins."""
    if isinstance(overrides, str):
        raise ConfigError(f"overrides={overrides!r} is one string; give a list of them")
    return Layer("override", _merged([_read_override(text) for text in overrides], "override"))


def merge(layers: Sequence[Layer]) -> DictConfig:
    """Merge layers, later ones on top; interpolations of the result see all of them."""
    return _merged([layer.tree for layer in layers], ", ".join(layer.source for layer in layers))


def _merged(trees: Sequence[DictConfig], source: str) -> DictConfig:
    try:
        merged = OmegaConf.merge({}, *trees)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{source}: {_first_line(error)}") from error
    return merged if isinstance(merged, DictConfig) else OmegaConf.create({})


def _read_file(path: Path) -> Layer:
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None and not isinstance(root, yaml.MappingNode):
            raise ConfigError(f"{path}: the top level must be a mapping of keys to values, not {text.strip()[:80]!r}")
        loaded = OmegaConf.load(io.StringIO(text))
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}); check the path") from error
    except PARSE_ERRORS as error:
        raise ConfigError(f"{path}{_where(error)}: no valid YAML: {_first_line(error)}") from error
    return Layer(path.name, loaded if isinstance(loaded, DictConfig) else OmegaConf.create({}))


def _where(error: Exception) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _first_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return str(error.problem)
    return str(error).partition("\n")[0]


def _from_mapping(mapping: Mapping[Any, Any] | DictConfig, source: str) -> Layer:
    try:
        return Layer(source, OmegaConf.create(_plain(mapping)))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{source}: {_first_line(error)}; give numbers, text, lists and mappings only") from error


def _plain(value: Any) -> Any:
    """Copy nested mappings and sequences as dicts and lists, interpolations unresolved."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read_override(text: str) -> DictConfig:
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        raise ConfigError(f"override {text!r} can't be read; write it as key.of.setting=value")
    try:
        if _is_plain_text(match["value"]):
            return OmegaConf.create(_nested(match["key"].split("."), match["value"]))
        return OmegaConf.from_dotlist([f"{match['key']}={match['value']}"])
    except PARSE_ERRORS as error:
        raise ConfigError(f"override {text!r} has no valid YAML value: {_first_line(error)}; quote it") from error


def _is_plain_text(value: str) -> bool:
    """Whether YAML would take for a mapping (`A:`) or a comment (`####`) what on a command line is meant as text."""
    parsed = yaml.safe_load(value)
    if isinstance(parsed, dict):
        return not value.lstrip().startswith("{")
    return parsed is None and value.lstrip().startswith("#")


def _nested(path: Sequence[str], value: str) -> dict[str, Any]:
    return {path[0]: _nested(path[1:], value) if path[1:] else value}
