"""Reward managers by name.

Built-in managers are imported when they are first asked for; a user's come from `@register`, from a module path
(`reward_manager: {source: importlib, module: {path: …}, name: …}`) or from a plugin's entry point in the group
`reward_loop.managers`. Invariant: a name means one class; registering another under it is refused.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from reward_loop.config import RewardManagerConfig
from reward_loop.errors import ConfigError
from reward_loop.functions.custom import load_module

Manager = TypeVar("Manager", bound=type)

ENTRY_POINTS = "reward_loop.managers"

_BUILT_IN = ("naive", "dapo", "gdpo", "prime", "rate_limited", "remote", "batch", "group", "rubric")
_registry: dict[str, type] = {}


def register(name: str) -> Callable[[Manager], Manager]:
    """Register the decorated reward manager under `name`."""

    def decorate(manager: Manager) -> Manager:
        if name in _BUILT_IN and manager.__module__ != _module_of(name):
            importlib.import_module(_module_of(name))  # the name is taken, whichever comes first
        known = _registry.get(name)
        # The same class may arrive twice: reloaded in a notebook, or unpickled by value in a worker.
        if known is not None and (known.__module__, known.__qualname__) != (manager.__module__, manager.__qualname__):
            raise ConfigError(
                f"reward manager {name!r} is already {known.__module__}.{known.__qualname__}; "
                f"register {manager.__module__}.{manager.__qualname__} under another name"
            )
        _registry[name] = manager
        return manager

    return decorate


def get_reward_manager_cls(name: str) -> type:
    """Return the reward manager that is registered under `name`; ConfigError names the nearest ones otherwise."""
    if name not in _registry and name in _BUILT_IN:
        importlib.import_module(_module_of(name))
    if name not in _registry:
        for plugin in entry_points(group=ENTRY_POINTS, name=name):
            register(name)(_loaded(plugin))
    if name not in _registry:
        known = sorted({*_BUILT_IN, *_registry, *(plugin.name for plugin in entry_points(group=ENTRY_POINTS))})
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            f"unknown reward manager {name!r}{f', did you mean {near[0]!r}?' if near else ''}; known are {known}. "
            "For one of your own set reward_manager.source=importlib and reward_manager.module.path to the file "
            "that defines it"
        )
    return _registry[name]


def _module_of(name: str) -> str:
    return "reward_loop.rubrics.manager" if name == "rubric" else f"reward_loop.managers.{name}"


def _loaded(plugin: EntryPoint) -> type:
    try:
        manager = plugin.load()
    except Exception as error:  # a plugin may raise anything while it is imported
        raise ConfigError(f"the reward manager {plugin.name!r} ({plugin.value}) can't be imported: {error!r}") from error
    if not isinstance(manager, type):
        raise ConfigError(f"the entry point {plugin.name!r} ({plugin.value}) must name a class; it is {manager!r:.100}")
    return manager


def resolve_reward_manager_cls(config: RewardManagerConfig) -> type:
    """Return the class that the configuration names, importing the user's module first where there is one."""
    if config.source == "register":
        return get_reward_manager_cls(config.name)
    module = load_module(str(config.module.path))
    manager = getattr(module, config.name, None) or _registry.get(config.name)
    if not isinstance(manager, type):
        classes = sorted(key for key, value in vars(module).items() if isinstance(value, type))
        raise ConfigError(f"{config.module.path} defines no reward manager {config.name!r}; its classes are {classes}")
    return manager
