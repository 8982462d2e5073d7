"""The mapping of judge services: `mcp_services` of a YAML file, validated as a whole.

Invariants: an unknown key is an error that names the nearest known one; what depends on a server (its tools, their arguments) is
checked when that is connected, not here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from omegaconf import OmegaConf
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from reward_loop.config_base import Config, Count, NotNegative
from reward_loop.config_layers import read_layer
from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.answers import Kind
from reward_loop.rubrics.judges.model_settings import ModelSettings
from reward_loop.rubrics.names import is_name

ANY_TOOL = "*"
"""The name of a service that has every tool which no other service is called after."""

_Seconds = Annotated[float, Field(gt=0)]
_Words = Annotated[tuple[str, ...], BeforeValidator(lambda words: shlex.split(words) if isinstance(words, str) else words)]


class _Service(Config):
    tool: str | None = None
    """The tool to call; by default the one called after the service, or the only one."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments that go with every call."""
    answer: Kind = "score"
    """What the tool gives: a score, a text (a service model), or any object."""
    timeout_s: _Seconds = 60.0
    """Seconds that a call may take with all its attempts, without the wait for its turn."""
    max_concurrency: Count = 64
    """Calls under way at once."""
    cache: NotNegative = 0
    """Answers that are kept, by the arguments; 0: none."""


class _Remote(_Service):
    retries: NotNegative = 3
    """How often a call is sent again whose connection broke."""
    connect_timeout_s: _Seconds = 30.0
    """Seconds until the server must have been reached, at the start and again by a call."""
    model: str | None = None
    """What judges there, where that is known: part of the cache's key."""


class McpSettings(_Remote):
    """A judge server, by streamable HTTP."""

    type: Literal["mcp"]
    endpoint: str = Field(pattern=r"^https?://")
    """Its address; one without a path means /mcp."""
    api_key_env: str | None = None
    """Environment variable with the bearer token that it wants."""


class StdioSettings(_Remote):
    """A judge server that is a child process of ours, started again when it ends."""

    type: Literal["stdio"]
    command: _Words = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables besides the few (PATH, HOME, …) that it gets."""
    cwd: str | None = None


class OpenAISettings(_Service, ModelSettings):
    """A tool of our own: a prompt for a model behind an OpenAI-compatible service."""

    type: Literal["openai_llm"]
    prompt: str | None = None
    """Its placeholders are the tool's arguments; without one the judge is shown every argument by name."""
    system: str | None = None


class InprocSettings(_Service):
    """A Python function or an MCP server object that was registered, or passed as `functions`."""

    type: Literal["inproc"]
    function: str | None = None
    """Its name, or `path/to/file.py:name`; by default the service's name."""


ServiceSettings: TypeAlias = McpSettings | StdioSettings | OpenAISettings | InprocSettings
_SERVICE: TypeAdapter[ServiceSettings] = TypeAdapter(Annotated[ServiceSettings, Field(discriminator="type")])
_TYPES: dict[str, type[Config]] = {
    "mcp": McpSettings,
    "stdio": StdioSettings,
    "openai_llm": OpenAISettings,
    "inproc": InprocSettings,
}


def read_services(source: Mapping[str, Any] | str | Path) -> dict[str, ServiceSettings]:
    """Return the settings of each service, from a mapping of them, or from a mapping or YAML file that has it as `mcp_services`.

    Raises one ConfigError that lists all that is wrong.
    """
    where = "" if isinstance(source, Mapping) else f"{source}: "
    tree: Any = OmegaConf.to_container(read_layer(source, 1).tree, resolve=True)
    services: Any = tree.get("mcp_services", tree)
    if not isinstance(services, dict):
        raise ConfigError(f"{where}mcp_services must be a mapping of names to services, not {services!r:.200}")
    read, problems = {}, list[str]()
    for name, told in services.items():
        if name != ANY_TOOL and not is_name(name):
            problems.append(f"mcp_services.{name}: a name is up to 64 of A-Z a-z 0-9 _ . -")
        try:
            read[str(name)] = _SERVICE.validate_python(told)
        except ValidationError as error:
            problems += [f"mcp_services.{name}{_problem(each, told)}" for each in error.errors()]
    if problems:
        raise ConfigError(where + "\n  ".join(problems))
    return read


def _problem(error: ErrorDetails, told: Any) -> str:
    kind = told.get("type") if isinstance(told, dict) else None
    place = [str(part) for part in error["loc"] if part != kind]
    text = error["msg"]
    if error["type"] == "extra_forbidden":
        near = get_close_matches(place[-1], list(_TYPES[str(kind)].model_fields), 1)
        text = f"a service of type {kind} has no such key" + (f"; did you mean {near[0]}?" if near else "")
    return "".join(f".{part}" for part in place) + f": {text}"
