"""What may be behind a judge service: an MCP server, a model with a prompt of ours, or a function of this process."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from reward_loop.errors import ConfigError, JudgeError, RewardLoopError
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.outcome import describe
from reward_loop.rubrics.judges.llm_judge import reasons_in, verdict_form
from reward_loop.rubrics.judges.mcp_session import McpSession
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible, texts_of, unusable
from reward_loop.rubrics.judges.reading import read_score
from reward_loop.rubrics.judges.service_settings import OpenAISettings
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.judges.tool import Tool, ToolResult

DEFAULT_PROMPT = """You are a judge. Grade what is given below, from 0 (worst) to 1 (best).

{arguments}

Answer with a JSON object: {{"reasoning": "why", "score": a number from 0 to 1}}"""


class Backend(Protocol):
    """Where a service's tools are; `tools` may be asked for once it is open."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that there are."""
        ...

    async def open(self) -> None:
        """Make it ready; ConfigError where it can't do what is asked."""
        ...

    async def close(self) -> None:
        """End what it holds, and the calls under way."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """Return what a tool gave, within `timeout_s`; JudgeError where it gave nothing."""
        ...


class McpBackend:
    """An MCP server."""

    def __init__(self, session: McpSession) -> None:
        self._session = session
        self.open = session.open
        self.close = session.close

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the server listed."""
        return self._session.tools

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """Return what a tool gave; ConfigError for arguments that are no JSON."""
        try:
            json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{tool}: the arguments {sorted(arguments)} can't be sent as JSON: {error}") from None
        return await self._session.call(tool, arguments, timeout_s)


class ModelBackend:
    """A prompt for a model; the prompt's placeholders are the tool's arguments."""

    def __init__(self, name: str, settings: OpenAISettings, client: OpenAICompatible) -> None:
        self._settings = settings
        self._client = client
        self._prompt = None if settings.prompt is None else PromptTemplate(settings.prompt)
        names = None if self._prompt is None else frozenset(self._prompt.names)
        self.tools = (Tool(settings.tool or name, names, names or frozenset(), f"asks {client.name}"),)

    async def open(self) -> None:
        """Nothing to do: each request brings its own connection."""

    async def close(self) -> None:
        """Nothing to do."""

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """Return the model's verdict, or what it wrote where the service's answer is no score."""
        del tool, timeout_s  # the client has the same deadline
        messages = [{"role": "user", "content": self._filled(arguments)}]
        if self._settings.system is not None:
            messages.insert(0, {"role": "system", "content": self._settings.system})
        scored = self._settings.answer == "score"
        reply = await self._client.chat(messages, form=verdict_form((0.0, 1.0)) if scored else None)
        text = texts_of(reply)[0]
        if not scored:
            return ToolResult(text=text)
        reading = read_score(text)
        score = None if reading is None else reading.on((0.0, 1.0))
        if score is None or not 0.0 <= score <= 1.0:
            raise unusable(reply, text, "it gives no score from 0 to 1")
        return ToolResult({"reasoning": text, **reasons_in([text]), "score": score})

    def _filled(self, arguments: Mapping[str, Any]) -> str:
        if self._prompt is not None:
            return self._prompt.filled(arguments)
        names = "\n\n".join(f"{name}:\n{{{name}}}" for name in arguments)
        shown = PromptTemplate(names).filled(arguments)
        return PromptTemplate(DEFAULT_PROMPT).filled({"arguments": shown}) if self._settings.answer == "score" else shown


class FunctionBackend:
    """A function of this process, which runs in a thread of its own unless it is async."""

    def __init__(self, name: str, function: Callable[..., Any], threads: int) -> None:
        self._function = function
        self._crew = ThreadCrew(threads, name=f"judge {name}")
        self.tools = (_tool_of(name, function),)

    async def open(self) -> None:
        """Nothing to do: threads start when they are needed."""

    async def close(self) -> None:
        """Let the threads end."""
        self._crew.close()

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """Return what the function gave; JudgeError where it raised, or took longer."""
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                given = await self._given(arguments)
        except TimeoutError as error:
            why = f"did not answer within {timeout_s} s (timeout_s)" if deadline.expired() else describe(error)
            raise JudgeError(f"{tool}: {why}") from error
        except RewardLoopError:
            raise
        except Exception as error:  # user code may raise anything
            raise JudgeError(f"{tool} raised {describe(error)}") from error
        return ToolResult(text=given) if isinstance(given, str) else ToolResult(given)

    async def _given(self, arguments: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        given = await self._crew.call(partial(self._function, **arguments))
        return await given if inspect.isawaitable(given) else given


def _tool_of(name: str, function: Callable[..., Any]) -> Tool:
    parameters = inspect.signature(function).parameters.values()
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters)
    takes = None if any_name else frozenset(each.name for each in parameters)
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needs = frozenset(each.name for each in named if each.default is each.empty)
    return Tool(name, takes, needs, inspect.getdoc(function) or "")
