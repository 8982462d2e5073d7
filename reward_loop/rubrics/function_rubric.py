"""A function, or any object that is called with a step, as a rubric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from reward_loop.functions.isolated import declared_isolation, isolated
from reward_loop.rubrics.arguments import Arguments, name_of
from reward_loop.rubrics.rubric import Rubric


class FunctionRubric(Rubric):
    """Calls a function with what it asks for by name (see `arguments`), or with (action, observation).

    What the object that is called knows of itself holds for the rubric: `reset`, `scale`, `config`, `updateable`, and where it
    is `isolated`. `bound` are arguments that are the same for every step.
    """

    def __init__(self, function: Callable[..., Any], bound: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self._arguments = Arguments(function, bound or {})
        for name in ("scale", "config", "updateable"):
            if (said := getattr(function, name, None)) is not None:
                setattr(self, name, said)
        if (declared := declared_isolation(function)) is not None:
            isolated(declared)(self)

    @property
    def is_async(self) -> bool:
        """Whether the function is declared `async`."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(type(self.function).__call__)

    @property
    def keys(self) -> frozenset[str] | None:
        """The keys of the metadata of which the function sees what they hold; None where it sees whole objects."""
        return self._arguments.keys

    def forward(self, action: Any, observation: Any) -> Any:
        """Return what the function does."""
        arguments = self._arguments
        if arguments.positional:
            return self.function(action, observation, **arguments.bound)
        return self.function(**arguments.of(action, observation))

    def reset(self) -> None:
        """Reset the object that is called, where it can be."""
        if callable(reset := getattr(self.function, "reset", None)):
            reset()
        super().reset()

    def __repr__(self) -> str:
        return f"FunctionRubric({name_of(self.function)})"
