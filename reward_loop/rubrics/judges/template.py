"""Prompts with placeholders: `{completion}`, `{metadata.task}`, filled in one pass.

Invariants: what is filled in is never looked at again, so braces in it are just text; a placeholder that nothing can fill is an
error when the template is made, one that this sample does not fill is an error when it is judged, and neither leaves a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from reward_loop.errors import ConfigError, DataError, JudgeError
from reward_loop.rubrics.arguments import text_of

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*(?:\.\w+)*)\}")
_PLACEHOLDER_OR_ESCAPE = re.compile(r"\{\{|\}\}|" + _PLACEHOLDER.pattern)
_ABSENT = object()


class PromptTemplate:
    """A text with placeholders; a dot leads to an attribute, or to a key of a mapping.

    Other braces stay as they are. A template that holds `{{` is one for `str.format`: there `{{` and `}}` stand for one brace.
    """

    def __init__(self, text: str, known: Collection[str] | None = None) -> None:
        """Take a template whose placeholders begin with names in `known` (None: with any names)."""
        self.text = text
        self._pattern = _PLACEHOLDER_OR_ESCAPE if "{{" in text else _PLACEHOLDER
        self._paths = [match[1] for match in self._pattern.finditer(text) if match[1]]
        if known is not None:
            for path in self._paths:
                _require(path, known)

    @property
    def names(self) -> tuple[str, ...]:
        """What is to be filled in, in order, without what follows a dot."""
        return tuple(dict.fromkeys(path.split(".")[0] for path in self._paths))

    def filled(self, values: Mapping[str, Any], **more: Any) -> str:
        """Return the text with each placeholder replaced, by `more` first; JudgeError where there is no value for one."""

        def replaced(match: re.Match[str]) -> str:
            path = match[1]
            if not path:
                return match[0][0]
            return _text(_value(path, more if path.split(".")[0] in more else values))

        return self._pattern.sub(replaced, self.text)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the value itself of a template that is one placeholder, such as a list; the filled text of any other."""
        alone = _PLACEHOLDER.fullmatch(self.text)
        return _value(alone[1], values) if alone else self.filled(values)


def _require(path: str, known: Collection[str]) -> None:
    name = path.split(".")[0]
    if name not in known:
        near = get_close_matches(name, known, 1)
        meant = f"; did you mean {{{near[0]}}}?" if near else ""
        raise ConfigError(f"the prompt has the placeholder {{{path}}}, but there are only {', '.join(sorted(known))}{meant}")


def _value(path: str, values: Mapping[str, Any]) -> Any:
    found: Any = values
    for name in path.split("."):
        found = found.get(name, _ABSENT) if isinstance(found, Mapping) else getattr(found, name, _ABSENT)
        if found is _ABSENT or found is None:
            raise JudgeError(f"the prompt needs {{{path}}}, which this sample does not have; it has {sorted(map(str, values))}")
    return found


def _text(value: Any) -> str:
    """Return a value as a judge reads it: JSON of data, the text of all else."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    try:
        return text_of(value)
    except DataError:  # not an action
        return str(value)
