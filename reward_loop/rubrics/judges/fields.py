"""What a judge may be shown of a step: the placeholders of its prompt are the names by which functions ask for it.

Invariant: only what a prompt holds is read, so a step lacks nothing that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reward_loop.rubrics.arguments import MISSING, READERS

FIELDS = READERS.keys()
"""The names (reward_loop/rubrics/arguments.py says what each is read from)."""


class StepFields(Mapping[str, Any]):
    """A step by these names, without those that it has nothing for."""

    def __init__(self, action: Any, observation: Any) -> None:
        self._action = action
        self._observation = observation

    def __getitem__(self, name: str) -> Any:
        value = READERS[name](self._action, self._observation)
        if value is MISSING:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in READERS if READERS[name](self._action, self._observation) is not MISSING)

    def __len__(self) -> int:
        return sum(1 for _ in self)
