"""`load_config` and `explain_config`: files, mappings and overrides in, one validated config out, or one ConfigError.

Invariants: both share one resolver, so that what is explained is what runs; a ConfigError lists every problem at once,
each with the key as the user wrote it, its value, where it came from and what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import ValidationError

from reward_loop.config import RewardLoopConfig
from reward_loop.config_layers import LayerLike, merge, read_layer, read_overrides
from reward_loop.config_problems import place_of, remedy_of
from reward_loop.config_settings import Setting, Settings, dotted, overlap
from reward_loop.config_spellings import SCHEMA, SchemaKey, schema_key_of, spelled
from reward_loop.errors import ConfigError

logger = logging.getLogger(__name__)

_CLASS = "reward_model.reward_manager.name"
_CLASS_IN_MODULE = "reward_model.reward_manager.module.name"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a loaded config."""

    key: str
    """Dotted name: the schema's, or for an ignored key the user's."""
    value: Any
    source: str
    """Where the value came from, such as "default", "dapo.yaml (as reward.num_workers)" or "override"."""
    ignored: bool = False
    """Whether it is a key of verl that the reward loop has no use for."""


def load_config(*layers: LayerLike, overrides: Sequence[str] = ()) -> RewardLoopConfig:
    """Merge layers left to right, then the overrides, and validate the result once.

    A layer is a YAML file's path, a mapping or a config; either generation of verl's names may be used. An override is
    `a.b=value`, where the value is YAML. Raises one ConfigError that lists every problem.
    """
    config, settings = _resolve(layers, overrides)
    for setting in settings.unused.values():
        logger.warning("%s (%s) ignored: the reward loop has no use for it", dotted(setting.key), setting.source)
    return config


def explain_config(*layers: LayerLike, overrides: Sequence[str] = ()) -> list[ConfigValue]:
    """List every setting that `load_config` would give, in schema order, with its source; then the ignored keys."""
    config, settings = _resolve(layers, overrides)
    ignored = [ConfigValue(dotted(s.key), s.value, s.source, ignored=True) for s in settings.unused.values()]
    return [value for key in SCHEMA.values() for value in _explain(key, config, settings)] + ignored


def _resolve(layers: Sequence[LayerLike], overrides: Sequence[str]) -> tuple[RewardLoopConfig, Settings]:
    read = [read_layer(layer, position) for position, layer in enumerate(layers, start=1)]
    read.append(read_overrides(overrides))
    settings = Settings(merge(read))
    for layer in read:
        settings.add(layer)
    problems = [*settings.problems, *_missing(settings)]
    try:
        config = RewardLoopConfig.model_validate(settings.tree())
    except ValidationError as error:
        raise _error([*problems, *_validation_problems(error, settings)]) from error
    if problems:
        raise _error(problems)
    return config, settings


def _error(problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0])
    return ConfigError("\n  ".join([f"{len(problems)} settings are wrong:", *problems]))


def _missing(settings: Settings) -> Iterator[str]:
    """Name what was left at `???`; how a reward model is served matters only where there is one."""
    enable = settings.get("reward_model.enable")
    for key, setting in settings.missing.items():
        unread = dotted(key).startswith("reward_model.rollout.") and not (enable and enable.value)
        if key not in settings.chosen and not unread:
            yield f"{setting}: a value is missing; give one"


def _validation_problems(error: ValidationError, settings: Settings) -> Iterator[str]:
    for detail in error.errors():
        path = place_of(detail)
        key = schema_key_of(dotted(path))
        setting = next((setting for setting in settings.chosen.values() if overlap(setting.key, path)), None)
        if setting is None and key is not None:
            newer = any(dotted(setting.spelling).startswith("reward.") for setting in settings.chosen.values())
            setting = Setting(path, tuple(spelled(key.key, newer).split(".")), key.default, "default")
        remedy = remedy_of(detail)
        if key is not None and key.nullable and detail["type"] != "unmet":
            remedy += ", or null"
        yield f"{setting or dotted(path)}: {remedy}"


def _explain(key: SchemaKey, config: RewardLoopConfig, settings: Settings) -> Iterator[ConfigValue]:
    path = tuple(key.key.split("."))
    below = [setting.key for setting in settings.chosen.values() if setting.key[: len(path)] == path]
    for place in below or [path]:
        value: Any = reduce(lambda node, name: node[name], place, config)
        setting = settings.chosen.get(place)
        if key.key == _CLASS and (setting is None or setting.value != value):
            setting = settings.get(_CLASS_IN_MODULE)  # the schema took the module's name
        yield ConfigValue(dotted(place), value, setting.origin if setting else "default")
