"""Finding a rubric's code by what a configuration calls it.

Looked for in this order: a name given to `@register_rubric`, `builtin.…`, `path/to/file.py:name`, a dotted path below an allowed
prefix. Invariants: a name means one thing; only a configuration that this process was started with names code, never a client.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from reward_loop.errors import ConfigError
from reward_loop.functions.custom import load_module
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.rubric import Rubric

T = TypeVar("T")

Factory: TypeAlias = Callable[[Mapping[str, Any], Resources], Rubric]
"""Makes a built-in rubric of its settings and of what the reward loop has."""

OWN_PREFIX = "reward_loop."

_BUILT_IN = {
    **dict.fromkeys(["builtin.rule", "builtin.custom", "builtin.reward_model"], "reward_loop.rubrics.builtin_functions"),
    **dict.fromkeys(["builtin.regex", "builtin.length"], "reward_loop.rubrics.builtin_text"),
    **dict.fromkeys(
        ["builtin.llm_judge", "builtin.criteria", "builtin.pairwise", "builtin.mcp"], "reward_loop.rubrics.judges.builtin"
    ),
}
"""The module of each, whose FACTORIES hold it; it is imported when it is asked for."""

ALONE = frozenset({"builtin.rule", "builtin.regex", "builtin.length"})
"""Those that need nothing of the reward loop, so that they can be built to see whether their settings are right."""

_registry: dict[str, Any] = {}


def register_rubric(name: str) -> Callable[[T], T]:
    """Decorator: a configuration may call this class or function `name`; ConfigError if that means another one."""
    if not name or name.startswith("builtin.") or ":" in name:
        raise ConfigError(f"a rubric can't be registered as {name!r}; take a name that is no path and begins not with builtin.")

    def register(thing: T) -> T:
        known = _registry.get(name)
        # The same one may arrive twice: reloaded in a notebook, or unpickled by value in a worker.
        if known is not None and _place(known) != _place(thing):
            raise ConfigError(f"the rubric {name!r} is {_place(known)} already; register {_place(thing)} under another name")
        _registry[name] = thing
        return thing

    return register


def builtin_factory(spec: str) -> Factory | None:
    """Return the factory of a built-in rubric; None if it is none, ConfigError for a name below builtin. that means nothing."""
    if spec in _registry or not spec.startswith("builtin."):
        return None
    if spec not in _BUILT_IN:
        raise _unknown(spec)
    factories: Mapping[str, Factory] = importlib.import_module(_BUILT_IN[spec]).FACTORIES
    return factories[spec]


def find_rubric(spec: str, allowed_prefixes: Iterable[str] = ()) -> Any:
    """Return the class, function or object of a rubric that is not built in.

    Raises ConfigError that names the nearest names, or the prefix that has to be allowed. A file or module is imported.
    """
    if spec in _registry:
        return _registry[spec]
    path, colon, name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return _member(load_module(path), name, spec)
    module, dot, name = spec.rpartition(".")
    if not dot:
        raise _unknown(spec)
    if not any(_is_below(spec, prefix) for prefix in (OWN_PREFIX, *allowed_prefixes)):
        raise _unknown(spec, f"; to import it, allow its prefix: allowed_prefixes: [{spec.partition('.')[0]}.]")
    return _member(load_module(f"pkg://{module}"), name, spec)


def _is_below(spec: str, prefix: str) -> bool:
    return bool(prefix) and spec.startswith(f"{prefix.removesuffix('.')}.")


def _member(module: Any, name: str, spec: str) -> Any:
    thing = getattr(module, name, None)
    if thing is None or not callable(thing):
        found = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        near = difflib.get_close_matches(name, found, n=1)
        raise ConfigError(f"{spec}: there is no rubric {name!r} there{_guess(near)}; it has {found}")
    return thing


def _unknown(
    spec: str, remedy: str = "; a rubric of your own is path/to/file.py:name, or registered by @register_rubric"
) -> ConfigError:
    known = sorted({*_registry, *_BUILT_IN})
    return ConfigError(f"unknown rubric {spec!r}{_guess(difflib.get_close_matches(spec, known, n=1))}; known are {known}{remedy}")


def _guess(near: list[str]) -> str:
    return f", did you mean {near[0]!r}?" if near else ""


def _place(thing: Any) -> str:
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"
