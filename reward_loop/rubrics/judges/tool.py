"""A tool of a judge service: what it is called, which arguments it takes, and what it gave back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave: structured content, the text beside it, and whether it is the tool's own error."""

    structured: Any = None
    text: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's name, the arguments it takes (None: any) and those it needs, and what it says of itself."""

    name: str
    takes: frozenset[str] | None = None
    needs: frozenset[str] = frozenset()
    description: str = ""

    @classmethod
    def from_schema(cls, name: str, schema: Mapping[str, Any], description: str = "") -> Tool:
        """Return the tool whose arguments a JSON schema describes."""
        open_ended = schema.get("additionalProperties") not in (None, False)
        takes = None if open_ended else frozenset(schema.get("properties", ()))
        return cls(name, takes, frozenset(schema.get("required", ())), description)

    def check(self, service: str, arguments: Collection[str], *, whole: bool = True) -> None:
        """Raise ConfigError for arguments that the tool does not take, and (where they are `whole`) for those it lacks."""
        unknown = sorted(set(arguments) - self.takes) if self.takes is not None else []
        missing = sorted(self.needs - set(arguments)) if whole else []
        if unknown or missing:
            wrong = f"does not take {unknown}" if unknown else f"needs {missing}"
            raise ConfigError(f"service {service}: the tool {self.name} {wrong}; it takes {self.described()}")

    def described(self) -> str:
        """Return its arguments in words."""
        return "any arguments" if self.takes is None else f"{sorted(self.takes)}, and needs {sorted(self.needs)}"


def chosen(service: str, wanted: str | None, tools: Collection[Tool]) -> Tool:
    """Return the tool that a service means: the wanted one, or the one called after it, or the only one; else ConfigError."""
    by_name = {tool.name: tool for tool in tools}
    if wanted is None and service not in by_name and len(by_name) == 1:
        return next(iter(by_name.values()))
    name = service if wanted is None else wanted
    if name not in by_name:
        raise ConfigError(f"service {service}: there is no tool {name}; there are {sorted(by_name)}: set tool to one of them")
    return by_name[name]
