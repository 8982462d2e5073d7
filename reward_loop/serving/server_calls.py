"""What is asked of a server to start, watch and pause it, each call with a deadline.

Invariant: what goes wrong is one of our errors: ServerUnavailable where the server can't be reached or fails, RequestRejected
where it refuses.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import aiohttp

from reward_loop.errors import RequestRejected, RewardServerError, ServerUnavailable
from reward_loop.serving.spec import ServerSpec

_HEALTH_S = 5.0
_PROBE_S = 120.0
_SWITCH_S = 300.0
"""Seconds for sleep and wake: the weights of a large model are read again."""


class ServerCalls:
    """Calls to the server at `url`."""

    def __init__(self, spec: ServerSpec, url: str) -> None:
        self._spec = spec
        self._url = url
        token = os.environ.get(spec.token_env) if spec.token_env else None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def health(self) -> None:
        """Return if the server and its engine are up."""
        await self._asked("GET", "/health", timeout_s=_HEALTH_S)

    async def probe(self) -> None:
        """Have one input scored, or one token generated."""
        if self._spec.kind == "generative":
            probe = {"model": self._spec.name, "prompt": [[0]], "max_tokens": 1, "temperature": 0}
            await self._asked("POST", "/v1/completions", probe, timeout_s=_PROBE_S)
        else:
            ids = [0] if self._spec.step_tag_id is None else [0, self._spec.step_tag_id]
            await self._asked("POST", "/score", {"model": self._spec.name, "input": [ids]}, timeout_s=_PROBE_S)

    async def sleep(self) -> None:
        """Put the engine to sleep once nothing is in flight; vLLM's own default would abort, which kills a pooling server."""
        await self._told(f"/sleep?level={self._spec.sleep_level}&mode=wait")

    async def wake_up(self) -> None:
        """Wake the engine."""
        await self._told("/wake_up")

    async def _asked(self, method: str, path: str, body: Any = None, *, timeout_s: float) -> None:
        status, said = await self._call(method, path, body, timeout_s)
        if status >= 500:
            raise ServerUnavailable(f"{method} {path}: status {status}: {said}")
        if status >= 400:
            raise RequestRejected(f"{method} {path}: status {status}: {said}", status, said)

    async def _told(self, path: str) -> None:
        """Raise ServerUnavailable if it can't be reached, RewardServerError if it does not do as it is told."""
        status, said = await self._call("POST", path, None, _SWITCH_S)
        if status >= 400:
            raise RewardServerError(f"server {self._spec.label} did not {path}: status {status}: {said}")

    async def _call(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, str]:
        where = f"{method} {self._url}{path}"
        try:
            # A session of its own: these calls are rare, and a restarted server must not meet an old connection.
            async with (
                asyncio.timeout(timeout_s),
                aiohttp.ClientSession(headers=self._headers) as session,
                session.request(method, self._url + path, json=body) as reply,
            ):
                return reply.status, _message(await reply.text())
        except TimeoutError:
            raise ServerUnavailable(f"{where}: no answer in {timeout_s:.0f} s") from None
        except aiohttp.ClientError as error:
            raise ServerUnavailable(f"{where}: {error or type(error).__name__}") from error


def _message(text: str) -> str:
    """Return the message in a reply of an error."""
    try:
        body = json.loads(text)
    except ValueError:
        return text[:500]
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
