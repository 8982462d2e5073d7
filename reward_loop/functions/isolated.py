"""Where a synchronous reward function runs, as its author declares it.

    inline    on the event loop itself: for functions of microseconds, that neither block nor hang; no deadline can end them
    thread    in a thread of the worker: the default; one that hangs is abandoned, not ended
    process   in a grader process, which is killed at the deadline, bounded in memory and replaced when it dies

`reward_model.isolation` overrules the declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

from reward_loop.errors import ConfigError

Isolation = Literal["inline", "thread", "process"]
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_ATTRIBUTE = "reward_loop_isolation"


def isolated(isolation: Isolation | Callable[[str | None], Isolation | None]) -> Callable[[FunctionT], FunctionT]:
    """Decorator: the function runs inline, in a thread or in a killable process unless the configuration says otherwise.

    A callable gets the sample's `data_source` and returns one of these, or None for what is async.
    """
    if not callable(isolation) and isolation not in get_args(Isolation):
        raise ConfigError(f"isolated({isolation!r}): it must be one of {', '.join(get_args(Isolation))}")

    def declare(function: FunctionT) -> FunctionT:
        setattr(function, _ATTRIBUTE, isolation)
        return function

    return declare


def declared_isolation(function: Callable[..., Any]) -> Isolation | Callable[[str | None], Isolation | None] | None:
    """Return what the function declares, else "thread"; None for an async function, which needs no place of its own."""
    if inspect.iscoroutinefunction(function):
        return None
    declared: Isolation | Callable[[str | None], Isolation | None] = getattr(function, _ATTRIBUTE, "thread")
    return declared


def isolation_of(function: Callable[..., Any], data_source: str | None) -> Isolation | None:
    """Return where the function declares to score samples of this data source."""
    declared = declared_isolation(function)
    return declared(data_source) if callable(declared) else declared
