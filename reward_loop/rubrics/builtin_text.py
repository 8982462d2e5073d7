"""Built-in rubrics that look at the text of an action only: whether it matches a pattern, and how long it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from reward_loop.errors import ConfigError
from reward_loop.functions.isolated import isolated
from reward_loop.rubrics.adapters import as_rubric
from reward_loop.rubrics.arguments import text_of
from reward_loop.rubrics.catalogue import Factory
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.rubric import Rubric


@dataclass(frozen=True, slots=True)
class RegexConfig:
    """Settings of `builtin.regex`."""

    pattern: str
    match: Literal["search", "start", "whole"] = "search"
    """Whether the pattern may match anywhere, from the beginning, or must match the whole text."""
    ignore_case: bool = False
    across_lines: bool = False
    """Whether . matches the end of a line too."""


# Inline: a thread would not help, as matching keeps Python's lock; and no client may send a pattern that takes for ever.
@isolated("inline")
class RegexRubric(Rubric):
    """Gives 1 to a text that a regular expression matches, and else 0."""

    def __init__(self, config: RegexConfig) -> None:
        flags = (re.IGNORECASE if config.ignore_case else 0) | (re.DOTALL if config.across_lines else 0)
        try:
            pattern = re.compile(config.pattern, flags)
        except (re.error, TypeError) as error:
            raise ConfigError(f"pattern={config.pattern!r} is no regular expression: {error}") from None
        ways = {"search": pattern.search, "start": pattern.match, "whole": pattern.fullmatch}
        if config.match not in ways:
            raise ConfigError(f"match={config.match!r} must be one of {', '.join(ways)}")
        self.config = config
        self._match = ways[config.match]

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 or 0."""
        del observation
        return 1.0 if self._match(text_of(action)) else 0.0


@dataclass(frozen=True, slots=True)
class LengthConfig:
    """Settings of `builtin.length`."""

    most: int | None = None
    """The longest text that gets 1; None: any."""
    least: int = 0
    """The shortest one."""
    falloff: int = 0
    """Over how much more (or less) the score falls from 1 to 0; 0: at once."""
    unit: Literal["characters", "words"] = "characters"


@isolated("inline")
class LengthRubric(Rubric):
    """Gives 1 to a text whose length lies within bounds, and less the farther it lies outside them."""

    updateable: ClassVar[tuple[str, ...]] = ("most", "least", "falloff", "unit")

    def __init__(self, config: LengthConfig) -> None:
        numbers: list[object] = [number for number in (config.most, config.least, config.falloff) if number is not None]
        if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in numbers):
            raise ConfigError(f"most, least and falloff must be whole numbers, 0 or more; they are {numbers}")
        if config.most is not None and config.most < config.least:
            raise ConfigError(f"most={config.most} must not be below least={config.least}")
        if config.unit not in ("characters", "words"):
            raise ConfigError(f"unit={config.unit!r} must be characters or words")
        self.config = config

    def forward(self, action: Any, observation: Any) -> dict[str, float]:
        """Return the score and the length."""
        del observation
        text = text_of(action)
        length = len(text.split()) if self.config.unit == "words" else len(text)
        most = length if self.config.most is None else self.config.most
        outside = max(length - most, self.config.least - length, 0)
        return {"score": max(0.0, 1.0 - outside / (self.config.falloff or 1)), "length": length}


def regex(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a `RegexRubric`."""
    del resources
    return as_rubric(RegexRubric, config=config)


def length(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return a `LengthRubric`."""
    del resources
    return as_rubric(LengthRubric, config=config)


FACTORIES: dict[str, Factory] = {"builtin.regex": regex, "builtin.length": length}
