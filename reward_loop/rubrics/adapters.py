"""Whatever scores a step as a `Rubric`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.functions.custom import load_function
from reward_loop.rubrics.construction import build
from reward_loop.rubrics.foreign_rubric import ForeignRubric
from reward_loop.rubrics.function_rubric import FunctionRubric
from reward_loop.rubrics.rubric import Rubric, is_rubric


def as_rubric(
    thing: Any,
    *,
    config: Mapping[str, Any] | Any = None,
    name: str | None = None,
    offered: Mapping[str, Any] | None = None,
    **given: Any,
) -> Rubric:
    """Return the rubric that a thing is, or can be called as; ConfigError where it can't.

    It may be: a rubric (also of another package); an object called with (action, observation); a function or coroutine
    function, which gets arguments by name (see `arguments`); a class of these, built from `config`; the file of one
    ("path.py:name", or "path.py" with `name`, by default compute_score). `given` are keyword arguments, for the constructor of
    a class or for every call of a function; of `offered` it gets what it has a parameter for.
    """
    if isinstance(thing, str | Path):
        thing = _loaded(str(thing), name)
    if inspect.isclass(thing):
        return as_rubric(build(thing, config, given, offered or {}))
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"{thing!r:.200} is no class: only a class is built from a config object; pass a mapping")
    bound = {**(config or {}), **given}
    if is_rubric(thing):
        if bound:
            raise ConfigError(f"{type(thing).__name__} is built already and takes no {sorted(bound)}; pass its class")
        return thing if isinstance(thing, Rubric) else ForeignRubric(thing)
    if not callable(thing):
        raise ConfigError(f"{thing!r:.200} is no rubric: it can't be called with (action, observation)")
    return FunctionRubric(thing, {**_wanted(thing, offered or {}), **bound})


def is_async(rubric: Rubric) -> bool:
    """Return whether a rubric is declared `async`; one that only returns an awaitable is found when it is called."""
    if isinstance(rubric, FunctionRubric):
        return rubric.is_async
    forward = rubric.inner.forward if isinstance(rubric, ForeignRubric) else rubric.forward
    return inspect.iscoroutinefunction(forward)


def _loaded(path: str, name: str | None) -> Any:
    file, colon, within = path.rpartition(":")
    if name is None and colon and not within.startswith("//"):
        return load_function(file, within)
    return load_function(path, name or "compute_score")


def _wanted(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {key: value for key, value in offered.items() if key in parameters}
