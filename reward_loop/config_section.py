"""`load_section`: files, mappings and overrides in, one validated object of any `Config` class out, or one ConfigError."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reward_loop.config_base import Config
from reward_loop.config_layers import LayerLike, merge, read_layer, read_overrides
from reward_loop.config_problems import place_of, remedy_of
from reward_loop.errors import ConfigError

C = TypeVar("C", bound=Config)


def load_section(kind: type[C], *layers: LayerLike, overrides: Sequence[str] = ()) -> C:
    """Merge layers left to right, then the overrides, and validate the result once.

    Raises one ConfigError that lists every wrong setting, with its value and what to do.
    """
    read = [read_layer(layer, position) for position, layer in enumerate(layers, start=1)]
    merged = merge([*read, read_overrides(overrides)])
    try:
        tree: Any = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).partition("\n")[0]) from error
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        problems = [_problem(kind, detail) for detail in error.errors()]
    raise ConfigError(problems[0] if len(problems) == 1 else "\n  ".join([f"{len(problems)} settings are wrong:", *problems]))


def _problem(kind: type[Config], detail: ErrorDetails) -> str:
    key = ".".join(map(str, place_of(detail)))
    if detail["type"] == "missing":
        return f"{key}: a value is missing; give one"
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(key, list(_keys(kind)), 1)
        return f"{key}: there is no such setting" + (f"; did you mean {near[0]}?" if near else "")
    given = "" if detail["type"] == "unmet" else f"={detail['input']!r:.100}"
    return f"{key}{given}: {remedy_of(detail)}"


def _keys(kind: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        yield before + name
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _keys(part, f"{before}{name}.")
