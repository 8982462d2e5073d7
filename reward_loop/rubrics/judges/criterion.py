"""One criterion of a judge, and a file of them.

Invariant: choices are ordered from the worst to the best and evenly spaced on [0, 1], so adding one in the middle moves no end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from omegaconf import OmegaConf
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from reward_loop.config_base import Config, unmet
from reward_loop.config_layers import read_layer
from reward_loop.errors import ConfigError
from reward_loop.rubrics.names import PATTERN
from reward_loop.scoring.transport import misfit


class Criterion(Config):
    """What a judge decides by choosing one of `choices`, from the worst to the best; `weight` counts in the mean."""

    name: str = Field(pattern=rf"^{PATTERN}$")
    description: str = Field(min_length=1)
    choices: tuple[str, ...] = Field(default=("no", "partly", "yes"), min_length=2)
    weight: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len(set(self.choices)) < len(self.choices) or not all(self.choices):
            raise unmet("choices", f"{list(self.choices)} must be different texts")
        return self

    def worth(self, choice: str) -> float:
        """Return what a choice is worth: 0 for the first, 1 for the last."""
        return self.choices.index(choice) / (len(self.choices) - 1)


_CRITERIA: TypeAdapter[tuple[Criterion, ...]] = TypeAdapter(Annotated[tuple[Criterion, ...], Field(min_length=1)])

CriteriaLike = str | Path | Mapping[str, Any] | Sequence[Criterion | Mapping[str, Any]]


def read_criteria(source: CriteriaLike) -> tuple[Criterion, ...]:
    """Return the criteria of a list, of a mapping of names to descriptions, or of a YAML file with `criteria: …`.

    Raises ConfigError for a file or a criterion that can't be read, for a name that comes twice, and where there is none.
    """
    where = "criteria"
    if isinstance(source, str | Path):
        where = str(source)
        read: Any = OmegaConf.to_container(read_layer(source, 1).tree, resolve=True)
        if not isinstance(read, dict) or set(read) != {"criteria"}:
            raise ConfigError(f"{where}: a file of criteria has the one key criteria; it has {list(read)!r:.200}")
        source = read["criteria"]
    if isinstance(source, Mapping):
        source = [{"name": name, **_described(told)} for name, told in source.items()]
    try:
        criteria = _CRITERIA.validate_python(source)
    except ValidationError as error:
        raise ConfigError(f"{where}: {misfit(error)}") from None
    names = [criterion.name for criterion in criteria]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{where}: {twice} are there twice; each criterion needs a name of its own")
    return criteria


def _described(told: Any) -> Mapping[str, Any]:
    return told if isinstance(told, Mapping) else {"description": told}
