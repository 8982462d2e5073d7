"""The user's reward function: loading it, and calling it with the arguments that its signature takes.

Invariant: what is wrong with the file or the signature is a ConfigError at load time, before any sample is scored.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from reward_loop.errors import ConfigError
from reward_loop.functions.isolated import declared_isolation, isolated

OFFERED = frozenset({"data_source", "solution_str", "ground_truth", "extra_info", "raw_prompt", "response_ids", "sandbox"})
"""What a function of one sample may take by name."""
OFFERED_WITH_MODEL = frozenset({"reward_router_address", "reward_model_tokenizer"})
"""What it may take besides where a reward model runs."""
OFFERED_TO_BATCH = frozenset({"data_sources", "solution_strs", "ground_truths", "extra_infos"})
"""What a function of many samples (managers `batch` and `group`) may take: lists of one length."""

T = TypeVar("T")

_MODULE_PREFIX = "reward_loop_user_"
_JUDGED = frozenset({"solution_str", "response_ids", "solution_strs", "raw_prompt"})


def load_module(path: str) -> ModuleType:
    """Import a module from a file path, a `file://` or a `pkg://dotted.name`; every failure is a ConfigError."""
    if path.startswith("pkg://"):
        name = path.removeprefix("pkg://")
        return _imported(lambda: importlib.import_module(name), path)
    file = Path(path.removeprefix("file://")).expanduser().resolve()
    if not file.is_file():
        raise ConfigError(f"{path}: there is no such file (looked at {file}); a module of a package is pkg://a.b")
    # The name is of the whole path, so that two files called reward.py can be used side by side, and is kept in
    # sys.modules, so that the file's classes pickle and its decorators run once.
    name = f"{_MODULE_PREFIX}{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    try:
        _imported(lambda: loader.exec_module(module), path)
    except ConfigError:
        del sys.modules[name]
        raise
    return module


def user_modules() -> list[str]:
    """Return the files that `load_module` has loaded, so that another process can load them before it unpickles."""
    return [str(module.__file__) for name, module in sorted(sys.modules.items()) if name.startswith(_MODULE_PREFIX)]


def _imported(load: Callable[[], T], path: str) -> T:
    try:
        return load()
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}"
        raise ConfigError(f"{path}: syntax error at {where}: {error.msg}: {(error.text or '').strip()}") from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported, exit() included
        raise ConfigError(f"{path}: importing it raised {type(error).__name__}: {error}") from error


def load_function(path: str, name: str) -> Callable[..., Any]:
    """Return the callable `name` of the module at `path` (see `load_module`)."""
    module = load_module(path)
    function = getattr(module, name, None)
    if function is None:
        found = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise ConfigError(f"{path} has no {name!r}; it has {found}: set custom_reward_function.name")
    if not callable(function):
        raise ConfigError(f"{path}: {name!r} is not callable but a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def adapt(
    function: Callable[..., Any], reward_kwargs: Mapping[str, Any], offered: frozenset[str] = OFFERED
) -> Callable[..., Any]:
    """Return a function that takes every offered argument by keyword and hands on those that `function` takes.

    `reward_kwargs` are added and win. It is a coroutine function where `function` is one, and shows its signature.
    Raises ConfigError where `function` needs what is not offered, or takes nothing of the rollout.
    """
    _check(function, reward_kwargs, offered)
    bound = functools.partial(function, **reward_kwargs)
    parameters = inspect.signature(bound).parameters.values()
    taken = {p.name for p in parameters if p.kind in _NAMED}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        taken |= _FOR_ANY_NAME
    names = tuple(sorted(taken & offered - reward_kwargs.keys()))

    async def call_async(**inputs: Any) -> Any:
        return await bound(**{name: inputs[name] for name in names if name in inputs})

    def call(**inputs: Any) -> Any:
        return bound(**{name: inputs[name] for name in names if name in inputs})

    adapted: Any = call_async if _is_coroutine_function(function) else call
    adapted.__name__ = adapted.__qualname__ = _name(function)
    adapted.__module__ = _origin(function).__module__
    adapted.__signature__ = inspect.signature(bound)
    if (declared := declared_isolation(_origin(function))) is not None:
        isolated(declared)(adapted)
    return adapted  # type: ignore[no-any-return]


def required_inputs(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the arguments that a function can't be called without."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in parameters if p.default is p.empty and p.kind in _NAMED)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
# A function with **kwargs gets what verl passes; anything more could be a surprise to what it hands its kwargs on to.
_FOR_ANY_NAME = (OFFERED - {"raw_prompt", "response_ids", "sandbox"}) | OFFERED_WITH_MODEL | OFFERED_TO_BATCH


def _origin(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _name(function: Callable[..., Any]) -> str:
    origin = _origin(function)
    return getattr(origin, "__name__", type(origin).__name__)


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    # An instance with `async def __call__` is one too, which inspect does not say in Python 3.11.
    origin = _origin(function)
    return inspect.iscoroutinefunction(origin) or inspect.iscoroutinefunction(type(origin).__call__)


def _check(function: Callable[..., Any], reward_kwargs: Mapping[str, Any], offered: frozenset[str]) -> None:
    name = _name(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: its signature can't be read ({error}); wrap it in a Python function") from error
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters if p.kind in _NAMED}
    positional = {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty}
    if missing := sorted((required_inputs(function) - offered - reward_kwargs.keys()) | positional):
        raise ConfigError(
            f"{name} needs {missing}, not passed by keyword; it may take {sorted(offered)}, "
            "and more through custom_reward_function.reward_kwargs"
        )
    if not any_name and (unknown := sorted(reward_kwargs.keys() - known)):
        raise ConfigError(f"{name} takes no {unknown}, given in custom_reward_function.reward_kwargs; it takes {sorted(known)}")
    if not any_name and known.isdisjoint(_JUDGED):
        raise ConfigError(f"{name}({', '.join(sorted(known))}) takes nothing of the rollout: add solution_str")
