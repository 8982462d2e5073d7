"""What a request ends with: a reply, or a refusal that is raised wherever it is found and becomes one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply with a JSON body."""

    status: int
    content: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def messages(self) -> list[dict[str, Any]]:
        """Return the reply as ASGI messages."""
        body = json.dumps(self.content, separators=(",", ":"), allow_nan=False).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self.headers}
        return [
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            },
            {"type": "http.response.body", "body": body},
        ]


class Refusal(Exception):
    """Ends a request: its status, a type for programs, a message for people, and the inputs at fault by index."""

    def __init__(self, status: int, kind: str, message: str, bad_inputs: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.bad_inputs = dict(bad_inputs or {})

    def reply(self) -> Reply:
        """Return the refusal as a reply."""
        error: dict[str, Any] = {"type": self.kind, "message": str(self), "code": self.status}
        if self.bad_inputs:
            error["index"] = min(self.bad_inputs)
            error["inputs"] = [{"index": at, "message": why} for at, why in sorted(self.bad_inputs.items())]
        return Reply(self.status, {"error": error})


def bad_request(message: str) -> Refusal:
    """Return the refusal of a request that is wrong as a whole."""
    return Refusal(400, "bad_request", message)


def bad_inputs(status: int, kind: str, why: Mapping[int, str]) -> Refusal:
    """Return the refusal of a request for the sake of some of its inputs."""
    first = min(why)
    more = f" (and {len(why) - 1} more inputs)" if len(why) > 1 else ""
    return Refusal(status, kind, f"input {first}: {why[first]}{more}", why)
