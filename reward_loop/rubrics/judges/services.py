"""The judge services of a run, by name: opened together, called by anybody, closed together.

Invariants: a service's tool and fixed arguments have been checked when `open` returns; an unusable answer is a JudgeError, never
a 0, and what it cost is recorded all the same; services may be called from any event loop, and work in the one that opened them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import weakref
from collections.abc import Callable, Collection, Coroutine, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, assert_never

import cachetools
from pydantic import TypeAdapter, ValidationError

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.functions.custom import load_module
from reward_loop.rubrics.judges.answers import Kind, answer_of
from reward_loop.rubrics.judges.backends import Backend, FunctionBackend, McpBackend, ModelBackend
from reward_loop.rubrics.judges.mcp_connection import HttpTarget, ObjectTarget, StdioTarget, Target
from reward_loop.rubrics.judges.mcp_session import McpSession
from reward_loop.rubrics.judges.registered import registered_judges
from reward_loop.rubrics.judges.service_settings import (
    ANY_TOOL,
    InprocSettings,
    McpSettings,
    OpenAISettings,
    ServiceSettings,
    StdioSettings,
    read_services,
)
from reward_loop.rubrics.judges.tool import Tool, ToolResult, chosen
from reward_loop.rubrics.judges.turns import Turns
from reward_loop.rubrics.judges.usage import JudgeUsage, record
from reward_loop.scoring.side_by_side import side_by_side

T = TypeVar("T")

_USAGE = TypeAdapter(JudgeUsage)
_CONNECT_S = 30.0


class JudgeServices:
    """The services of a mapping, or of a YAML file that has it as `mcp_services`; use it with `async with`.

    `functions` are what services of type inproc may name, besides those that are registered: Python functions, or server objects
    of the MCP SDK. `router_address` is where the models of openai_llm services without an endpoint are.
    """

    def __init__(
        self,
        services: Mapping[str, Any] | str | Path,
        *,
        functions: Mapping[str, Any] | None = None,
        router_address: str | None = None,
    ) -> None:
        known = {**registered_judges(), **(functions or {})}
        settings = read_services(services)
        self._services = {
            name: _Offered(name, each, _backend(name, each, known, router_address)) for name, each in settings.items()
        }
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open all services. Raises ConfigError for a tool or arguments that a service lacks, JudgeError for one out of reach."""
        if self._loop is not None:
            raise ConfigError("these services are open already")
        self._loop = asyncio.get_running_loop()
        try:
            await side_by_side([each.open for each in self._services.values()])
        except BaseException:  # cancelled too: those that are open already have processes and connections
            await self.close()
            raise

    async def close(self) -> None:
        """End all services, the calls under way, and the processes that were started for them."""
        self._loop = None
        await side_by_side([each.backend.close for each in self._services.values()])

    async def call_tool(self, service: str, /, **arguments: Any) -> dict[str, Any]:
        """Return a service's answer: a mapping with "score", or what its setting `answer` says.

        Raises ConfigError for a service that is not there and arguments that its tool does not take, JudgeError where it gave no
        answer that can be used.
        """
        offered, tool = self._found(service)
        return await self._here(offered.answer(tool, arguments))

    @property
    def is_open(self) -> bool:
        """Whether services can be called."""
        return self._loop is not None

    def require(self, service: str, arguments: Collection[str]) -> None:
        """Raise ConfigError unless an open service has a tool that takes these arguments, and no others must be given."""
        offered, tool = self._found(service)
        tool.check(service, {*arguments, *offered.settings.arguments})

    def tools(self) -> dict[str, tuple[Tool, ...]]:
        """Return the tools that each open service has."""
        return {name: offered.backend.tools for name, offered in self._services.items()}

    def offered(self) -> list[tuple[str, Tool, Kind]]:
        """Return each service's name, the tool that it calls, and what that answers; the tools of `*` under their own names."""
        named = [(name, each) for name, each in self._services.items() if name != ANY_TOOL]
        found = [(name, self._found(name)[1], each) for name, each in named]
        if any_tool := self._services.get(ANY_TOOL):
            found += [(tool.name, tool, any_tool) for tool in any_tool.backend.tools if tool.name not in self._services]
        return [(name, tool, each.kind) for name, tool, each in found]

    def _found(self, service: str) -> tuple[_Offered, Tool]:
        if self._loop is None:
            raise JudgeError(f"service {service} can't be called: the services are not open; use `async with`")
        if offered := self._services.get(service):
            return offered, chosen(service, offered.settings.tool, offered.backend.tools)
        if any_tool := self._services.get(ANY_TOOL):
            return any_tool, chosen(service, service, any_tool.backend.tools)
        near = get_close_matches(service, self._services, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no judge service {service}; there are {sorted(self._services)}{meant}")

    async def _here(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call in the loop of the services, whichever loop this is."""
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop():
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, loop))


class _Offered:
    """One service: its limits, its cache, and what its tool's results mean."""

    def __init__(self, name: str, settings: ServiceSettings, backend: Backend) -> None:
        self.settings = settings
        self.kind: Kind = settings.answer
        self.backend = backend
        self._name = name
        self._turns = Turns(settings.max_concurrency)
        self._kept: cachetools.LRUCache[str, dict[str, Any]] | None = None
        if settings.cache:
            self._kept = cachetools.LRUCache(settings.cache)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def open(self) -> None:
        await self.backend.open()
        _check(self._name, self.settings, self.backend.tools)

    async def answer(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {**self.settings.arguments, **arguments}
        tool.check(self._name, given)
        if self._kept is None:
            return await self._asked(tool.name, given)
        key = self._key(tool.name, given)
        async with self._locks.setdefault(key, asyncio.Lock()):  # equal calls at the same time are one
            if key not in self._kept:
                self._kept[key] = await self._asked(tool.name, given)
            return copy.deepcopy(self._kept[key])

    async def _asked(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turns.taken():
            result = await self.backend.call(tool, arguments, self.settings.timeout_s)
        who = f"service {self._name} ({tool})"
        if not isinstance(self.settings, OpenAISettings):  # those record what they use themselves
            result, used = _without_usage(result)
            record(self._name, used)
        return answer_of(result, self.kind, who)

    def _key(self, tool: str, arguments: Mapping[str, Any]) -> str:
        model = None if isinstance(self.settings, InprocSettings) else self.settings.model
        try:
            return json.dumps([tool, model, arguments], sort_keys=True)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"service {self._name}: a cache needs arguments that are JSON: {error}") from None


def _check(name: str, settings: ServiceSettings, tools: tuple[Tool, ...]) -> None:
    """Raise ConfigError unless a service has its tool, and that takes the fixed arguments."""
    if name != ANY_TOOL:
        chosen(name, settings.tool, tools).check(name, settings.arguments, whole=False)


def _without_usage(result: ToolResult) -> tuple[ToolResult, JudgeUsage]:
    """Return a result without what it says it cost, and that; our judge server says so."""
    if isinstance(result.structured, Mapping) and "usage" in result.structured:
        try:
            used = _USAGE.validate_python(result.structured["usage"])
        except ValidationError:
            return result, JudgeUsage(calls=1)
        rest = {key: value for key, value in result.structured.items() if key != "usage"}
        return ToolResult(rest, result.text, result.is_error), used
    return result, JudgeUsage(calls=1)


def _backend(name: str, settings: ServiceSettings, known: Mapping[str, Any], router_address: str | None) -> Backend:
    check: Callable[[tuple[Tool, ...]], None] = partial(_check, name, settings)

    def remote(target: Target, retries: int, connect_timeout_s: float) -> Backend:
        return McpBackend(McpSession(name, target, check, retries=retries, connect_timeout_s=connect_timeout_s))

    match settings:
        case McpSettings():
            return remote(HttpTarget(settings.endpoint, settings.api_key_env), settings.retries, settings.connect_timeout_s)
        case StdioSettings():
            target = StdioTarget(settings.command, settings.env, settings.cwd)
            return remote(target, settings.retries, settings.connect_timeout_s)
        case OpenAISettings():
            return ModelBackend(name, settings, settings.client(router_address, name))
        case InprocSettings():
            found = _function(name, settings.function or name, known)
            if callable(found):
                return FunctionBackend(settings.tool or name, found, settings.max_concurrency)
            return remote(ObjectTarget(found), 0, _CONNECT_S)
    assert_never(settings)


def _function(service: str, function: str, known: Mapping[str, Any]) -> Any:
    """Return the judge function of a name, or of a `path/to/file.py:name`."""
    path, colon, member = function.rpartition(":")
    found = getattr(load_module(path), member, None) if colon else known.get(function)
    if found is None:
        there = f"{path} has no {member!r}" if colon else f"there is no judge function {function}; there are {sorted(known)}"
        raise ConfigError(f"service {service}: {there}: register it, or write path/to/file.py:name")
    return found
