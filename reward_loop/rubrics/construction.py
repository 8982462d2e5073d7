"""Building the object of a rubric's class from settings: with a config dataclass where its constructor asks for one."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.outcome import describe

_NOT_KNOWN_HERE = (NameError, AttributeError, TypeError, SyntaxError)
"""What evaluating an annotation raises that names what is imported for type checkers alone, or is no type."""


def build(
    factory: Callable[..., Any], config: Mapping[str, Any] | Any, given: Mapping[str, Any], offered: Mapping[str, Any]
) -> Any:
    """Return what the class (or function) makes of its settings; every mistake in them is a ConfigError.

    A parameter `config` gets the settings, as the dataclass or pydantic model of its annotation; without one they are keyword
    arguments. `given` must be taken; of `offered` it gets what it has a parameter for.
    """
    name = factory.__qualname__
    parameters = _parameters(factory, name)
    arguments = dict(given)
    if "config" in parameters:
        arguments["config"] = _config_for(factory, parameters["config"], config)
        if arguments["config"] is None:
            del arguments["config"]
    elif config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"{name} takes no config, but was given {config!r:.200}")
    else:
        arguments |= config or {}
    arguments |= {key: value for key, value in offered.items() if key in parameters and key not in arguments}
    _check(name, parameters, arguments)
    try:
        return factory(**arguments)
    except RewardLoopError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise ConfigError(f"{name} can't be built: {describe(error)}") from error


def settings_of(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return the dataclass or pydantic model `kind` with these values, dataclasses within it too; unknown keys are loud."""
    if not dataclasses.is_dataclass(kind):
        return _validated(kind, values, where)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    _refuse(where, list(fields), [key for key in values if key not in fields])
    missing = [name for name, field in fields.items() if name not in values and _required(field)]
    if missing:
        raise ConfigError(f"{where} needs {missing}; it was given {list(values)}")
    hints = _hints(kind)
    made = {key: _nested(hints.get(key), value, f"{where}.{key}") for key, value in values.items()}
    try:
        return kind(**made)  # type: ignore[operator]
    except RewardLoopError:
        raise
    except Exception as error:  # a user's __post_init__ may raise anything
        raise ConfigError(f"{where}: {describe(error)}") from error


def _nested(hint: Any, value: Any, where: str) -> Any:
    kind = _settings_class(hint)
    return settings_of(kind, value, where) if kind is not None and isinstance(value, Mapping) else value


def _config_for(factory: Callable[..., Any], parameter: inspect.Parameter, config: Any) -> Any:
    if config is not None and not isinstance(config, Mapping):
        return config  # made already
    kind = _settings_class(_resolved(factory, parameter.annotation))
    if kind is None:
        return config if config is not None or parameter.default is not parameter.empty else {}
    if config is None and parameter.default is not parameter.empty:
        return None
    return settings_of(kind, config or {}, kind.__qualname__)


def _settings_class(hint: Any) -> Any:
    """Return the dataclass or pydantic model that an annotation names, alone or in a union."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    return next((kind for kind in choices if isinstance(kind, type) and _is_settings(kind)), None)


def _is_settings(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate")


def _resolved(factory: Callable[..., Any], annotation: Any) -> Any:
    """Return what an annotation means; only this one, for others may name what is imported for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(factory.__init__ if isinstance(factory, type) else factory)  # type: ignore[misc]
    stub = types.SimpleNamespace(__annotations__={"config": annotation})
    try:
        return typing.get_type_hints(stub, globalns=getattr(function, "__globals__", {}))["config"]
    except _NOT_KNOWN_HERE:
        return None


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except _NOT_KNOWN_HERE:  # then nothing is nested
        return {}


def _parameters(factory: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: its signature can't be read ({error}); pass an object of it") from error


def _check(name: str, parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        _refuse(name, list(parameters), [key for key in arguments if key not in parameters])
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    missing = [key for key, p in parameters.items() if p.default is p.empty and p.kind not in variable and key not in arguments]
    if missing:
        raise ConfigError(f"{name} needs {missing}; it was given {sorted(arguments)}")


def _refuse(where: str, known: list[str], unknown: list[str]) -> None:
    if unknown:
        near = get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        raise ConfigError(f"{where} takes no {unknown}{hint} it takes {known}")


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _validated(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    fields = getattr(kind, "model_fields", {})
    _refuse(where, list(fields), [key for key in values if key not in fields])
    try:
        return kind.model_validate(values)
    except ValueError as error:  # pydantic's ValidationError is one
        raise ConfigError(f"{where}: {error}") from error
