"""One request to one server: what it answered, or in words why there is no answer.

Invariant: every call ends by its deadline, with an `Answer`; only the cancelling of the caller is raised.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class Access:
    """What lets requests in: an environment variable with a bearer token, read for each request, and further headers."""

    token_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def all_headers(self) -> dict[str, str]:
        """Return the headers of a request."""
        token = os.environ.get(self.token_env, "").strip() if self.token_env else ""
        return ({"Authorization": f"Bearer {token}"} if token else {}) | dict(self.headers)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one server answered; `said` is its complaint, or why there is no answer (`status` 0)."""

    server: str
    status: int
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    said: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def good(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status == 200

    @property
    def lost(self) -> bool:
        """Whether nobody knows what the server did: the connection broke, or the time was over."""
        return self.status == 0

    def __str__(self) -> str:
        return f"{self.server} {self.said}"


async def call(
    server: str, method: str, path: str, body: object = None, *, access: Access | None = None, timeout_s: float
) -> Answer:
    """Send one request to the server at "http://host:port" and return its answer; a redirect is none."""
    try:
        # A session of its own: these calls are rare, and a restarted server must not meet an old connection.
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(
                headers=(access or Access()).all_headers(), timeout=aiohttp.ClientTimeout(total=None)
            ) as session,
            session.request(method, server + path, json=body, allow_redirects=False) as reply,
        ):
            return _answered(server, reply.status, await reply.text(), reply.headers)
    except TimeoutError:
        return Answer(server, 0, said=f"did not answer {method} {path} within {timeout_s:.1f} s")
    except (aiohttp.ClientError, OSError) as error:
        return Answer(server, 0, said=f"can't be reached for {method} {path}: {type(error).__name__}: {error}")


def _answered(server: str, status: int, text: str, headers: Mapping[str, str]) -> Answer:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):  # vLLM ends some calls with nothing
        body = {} if status == 200 else {"error": {"message": text}}
    if status == 200:
        return Answer(server, status, body, headers=headers)
    error = body.get("error", body)
    message = error.get("message", error) if isinstance(error, dict) else error
    return Answer(server, status, body, f"answered {status}: {str(message)[:_SHOWN] or 'nothing more'}", headers)
