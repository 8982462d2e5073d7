"""What a function may ask of a step by the names of its parameters.

    action, observation                                       the objects themselves
    done, metadata                                            of the observation
    completion, response, solution_str, message, content      the text of the action
    prompt, raw_prompt                                        metadata["prompt"] or metadata["raw_prompt"]
    ground_truth, answer                                      metadata["ground_truth"] or metadata["answer"]
    info, extra_info                                          metadata["info"] or metadata["extra_info"]
    state, data_source, response_ids, sandbox,                metadata of the same name
      reward_router_address, reward_model_tokenizer

Invariants: a parameter with a default keeps it where the step has no such thing; one without is then an error that names it;
a name that is none of these is a ConfigError before any step.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from reward_loop.errors import ConfigError, DataError
from reward_loop.rubrics.observation import Action, is_done, metadata_of


class MISSING:
    """What a reader returns where the step has no such thing; a class, which is the same one wherever a rubric is unpickled."""


Reader: TypeAlias = Callable[[Any, Any], Any]

TEXT = ("message", "content", "text", "code")
"""The attributes (or keys) of an action that hold its text, the first one that is there."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
# A function with **kwargs gets what verl passes: anything more could be a surprise to what it hands its kwargs on to.
_FOR_ANY_NAME = ("data_source", "solution_str", "ground_truth", "extra_info")


def text_of(action: Any) -> str:
    """Return the text of an action: a string, or an object or mapping with a message, content, text or code."""
    if type(action) is Action:  # most are, and `Mapping` takes long to ask
        return action.message
    if isinstance(action, str):
        return action
    for name in TEXT:
        text = action.get(name) if isinstance(action, Mapping) else getattr(action, name, None)
        if isinstance(text, str):
            return text
    raise DataError(f"an action of class {type(action).__name__} has no text: it needs one of {', '.join(TEXT)}")


def _from_metadata(keys: tuple[str, ...]) -> Reader:
    def read(_: Any, observation: Any) -> Any:
        metadata = metadata_of(observation)
        for key in keys:
            if key in metadata:
                return metadata[key]
        return MISSING

    return read


_ALONE = ("state", "data_source", "response_ids", "sandbox", "reward_router_address", "reward_model_tokenizer")
_PAIRS = (("prompt", "raw_prompt"), ("ground_truth", "answer"), ("info", "extra_info"))
_KEYS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in _ALONE},
    **{one: (one, other) for pair in _PAIRS for one, other in (pair, pair[::-1])},
}

READERS: Mapping[str, Reader] = {
    "action": lambda action, _: action,
    "observation": lambda _, observation: observation,
    "obs": lambda _, observation: observation,
    "done": lambda _, observation: is_done(observation),
    "metadata": lambda _, observation: metadata_of(observation),
    **dict.fromkeys(("completion", "response", "solution_str", "message", "content"), lambda action, _: text_of(action)),
    **{name: _from_metadata(keys) for name, keys in _KEYS.items()},
}

_WHOLE = frozenset({"action", "observation", "obs"})
_OBJECTS = _WHOLE | {"metadata"}


class Arguments:
    """How a function is called with a step; built once per function. `bound` are arguments that are given already."""

    def __init__(self, function: Callable[..., Any], bound: Mapping[str, Any]) -> None:
        self._name = name_of(function)
        self.bound = dict(bound)
        everything = _parameters(function, self._name)
        _check_bound(self._name, everything, bound)
        parameters = [p for p in everything if p.name not in bound]
        self.positional = _takes_a_step(parameters)
        """Whether the function gets (action, observation) by position, as it gives them names of its own."""
        named = [] if self.positional else [p for p in parameters if p.kind in _NAMED]
        self._taken = {p.name: p.default is p.empty for p in named if p.name in READERS}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            self._taken |= {name: False for name in _FOR_ANY_NAME if name not in self._taken and name not in bound}
        if not self.positional:
            self._check(parameters)
        self._readers = tuple((name, READERS[name], required) for name, required in self._taken.items())

    @property
    def keys(self) -> frozenset[str] | None:
        """The keys of the metadata of which the function sees what they hold; None where it sees whole objects."""
        if self.positional or not _OBJECTS.isdisjoint(self._taken):
            return None
        return frozenset(key for name in self._taken for key in _KEYS.get(name, ()))

    def of(self, action: Any, observation: Any) -> dict[str, Any]:
        """Return the keyword arguments for a step; DataError where the function can't do without something it lacks."""
        taken = dict(self.bound)
        for name, read, required in self._readers:
            value = read(action, observation)
            if value is not MISSING:
                taken[name] = value
            elif required:
                raise DataError(
                    f"{self._name} needs {name!r}, and observation.metadata has none; it has "
                    f"{sorted(map(str, metadata_of(observation)))!r:.200}"
                )
        return taken

    def _check(self, parameters: list[inspect.Parameter]) -> None:
        needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        unknown = [name for name in needed if name not in self._taken]
        if unknown or not self._taken:
            problem = f"asks for {unknown}" if unknown else "takes nothing of a step"
            raise ConfigError(
                f"{self._name} {problem}; a rubric is called with (action, observation), or by name with {', '.join(READERS)}: "
                "take metadata for what an environment adds, and bind all else as keyword arguments of as_rubric"
            )


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: its signature can't be read ({error}); wrap it in a Python function") from error


def _check_bound(name: str, parameters: list[inspect.Parameter], bound: Mapping[str, Any]) -> None:
    known = [p.name for p in parameters if p.kind in _NAMED]
    unknown = sorted(bound.keys() - set(known))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ConfigError(f"{name} takes no {unknown}; it takes {known}")


def _takes_a_step(parameters: list[inspect.Parameter]) -> bool:
    """Say whether there are two positional parameters to be filled, neither of which bears a name that says otherwise."""
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if len(needed) != 2 or needed != places[:2]:
        return False
    names = {p.name for p in needed}
    by_position = any(p.kind is p.POSITIONAL_ONLY for p in needed)
    return by_position or (not names <= READERS.keys() and names.isdisjoint(READERS.keys() - _WHOLE))
