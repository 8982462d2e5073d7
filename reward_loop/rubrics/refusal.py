"""A configuration of rubrics, or an update of one, that is not taken: why, in words for people and one for programs.

Invariant: who is refused has changed nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from reward_loop.errors import ConfigError

Code: TypeAlias = Literal[
    "not_json",
    "bad_shape",
    "bad_value",
    "bad_weight",
    "bad_config",
    "unknown_key",
    "unknown_rubric",
    "duplicate",
    "not_updateable",
    "conflict",
    "read_only",
]
"""`conflict`: it was made for another version. `read_only`: another process takes the updates. The others say what is wrong."""


class ConfigRefused(ConfigError):
    """What was given is not taken, and nothing of it; `code` says why, for programs."""

    code: Code

    def __init__(self, message: str, sample: str | None = None, code: Code = "bad_value") -> None:
        super().__init__(message, sample)
        self.code = code


def refused(code: Code, message: str) -> ConfigRefused:
    """Build the error."""
    return ConfigRefused(message, code=code)


def all_of(problems: Sequence[ConfigRefused]) -> ConfigRefused:
    """Build one error of several; its code is that of the first."""
    if len(problems) == 1:
        return problems[0]
    return refused(problems[0].code, "; ".join(problem.message for problem in problems))


def unknown(code: Code, what: str, name: object, known: Iterable[str]) -> ConfigRefused:
    """Build the error of a name that nobody knows, with the nearest one that is known."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    guess = f", did you mean {near[0]!r}?" if near else ";"
    return refused(code, f"there is no {what} {name!r:.200}{guess} known are {', '.join(names) or 'none'}")
