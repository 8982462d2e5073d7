"""The judge functions that services of type `inproc` may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from reward_loop.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}


def register_judge(name: str) -> Callable[[F], F]:
    """Register a function, synchronous or async, under a name; ConfigError for one that is taken."""

    def register(function: F) -> F:
        if name in _functions:
            raise ConfigError(f"there is a judge {name} already ({_functions[name]!r}); choose another name")
        _functions[name] = function
        return function

    return register


def registered_judges() -> dict[str, Callable[..., Any]]:
    """Return the functions by name."""
    return dict(_functions)
