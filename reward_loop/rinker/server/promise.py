"""One request's result, which is still to come or has come."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from reward_loop.rinker.wire.replies import json_bytes

JSON = "application/json"

Key = tuple[Hashable, ...]
"""What makes a request the same as an earlier one: whose it is, and its number there."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A result as it is sent."""

    body: bytes
    content_type: str = JSON
    failed: bool = False

    @classmethod
    def of(cls, **fields: object) -> Reply:
        """Return one in JSON."""
        return cls(json_bytes(fields))

    @classmethod
    def failure(cls, error: str, category: str) -> Reply:
        """Return one that says what went wrong, and whose fault it is."""
        return cls(json_bytes({"error": error, "category": category}), failed=True)


@dataclass(slots=True, eq=False)
class Promise:
    """The result of the request with this id; `changed` is set when it is there, or when nobody can wait for it any more."""

    id: str
    key: Key
    session_id: str
    reply: Reply | None = None
    settled_at: float = 0.0
    fetched_at: float | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def sequence_ids(self, count: int) -> list[str]:
        """Return the names of the sequences that it will bring."""
        return [f"{self.id}:{index}" for index in range(count)]
