"""Reading and changing the configuration of a running pipeline over HTTP, from async code or not.

What is refused is a RequestRejected (`status`, `body`; 412 where another client was faster), a server that does not answer a
ServerUnavailable. Invariant: every request ends within `timeout_s`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import aiohttp

from reward_loop.errors import RequestRejected, RewardLoopError, ServerUnavailable
from reward_loop.loop_thread import LoopThread
from reward_loop.rubrics.update import Applies
from reward_loop.scoring.endpoint import service_url
from reward_loop.scoring.sessions import session

Json = dict[str, Any]

TIMEOUT_S = 10.0
EDIT_ATTEMPTS = 5
_CONFLICT = 412


class AsyncRubricConfigClient:
    """Asks the server at `url` (http://host:port); `author` is the name that its audit shows."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S, author: str | None = None) -> None:
        self._url = str(service_url(url if "://" in url else f"http://{url}")).rstrip("/").removesuffix("/config") + "/config"
        self._timeout_s = timeout_s
        self._headers = {
            **({} if token is None else {"Authorization": f"Bearer {token}"}),
            **({} if author is None else {"X-Config-Author": author}),
        }

    async def get(self, *, pending: bool = False) -> Json:
        """Return the active configuration, or the one that holds from the next reset on, with its `config_version`."""
        return (await self._ask("GET", params={"pending": "1"} if pending else {}))[0]

    async def schema(self) -> Json:
        """Return the JSON schema of updates."""
        return (await self._ask("GET", "/schema"))[0]

    async def news(self, after: int, wait_s: float) -> Json:
        """Return what `get(pending=True)` does, and `immediate`, once the version isn't `after`, or after `wait_s`."""
        params = {"after": str(after), "wait_s": str(wait_s)}
        return (await self._ask("GET", params=params, timeout_s=self._timeout_s + wait_s))[0]

    async def update(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        enabled: Mapping[str, bool] | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        apply: Applies | None = None,
        if_version: int | None = None,
    ) -> Json:
        """Change weights, switches or settings by the rubrics' names, all or none; return the server's answer.

        With `if_version` only if no other client has changed anything since that version.
        """
        given = {"weights": weights, "enabled": enabled, "config": config, "apply": apply, "config_version": if_version}
        return await self.post({key: value for key, value in given.items() if value is not None})

    async def post(self, body: Mapping[str, Any], if_match: str | None = None) -> Json:
        """Send an update as it is, in any of the forms that the server takes; return the server's answer."""
        headers = {} if if_match is None else {"If-Match": if_match}
        return (await self._ask("POST", body=body, headers=headers))[0]

    async def edit(self, change: Callable[[Json], Mapping[str, Any]], attempts: int = EDIT_ATTEMPTS) -> Json:
        """Send the update that `change` makes of the newest configuration; again where another client was faster."""
        for attempt in range(1, attempts + 1):
            config, tag = await self._ask("GET", params={"pending": "1"})
            try:
                return await self.post(change(config), if_match=tag)
            except RequestRejected as error:
                if error.status != _CONFLICT or attempt == attempts:
                    raise
        raise RewardLoopError(f"attempts={attempts} must be 1 or more")

    async def _ask(
        self,
        method: str,
        path: str = "",
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> tuple[Json, str]:
        """Return the answer and its tag."""
        limit = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        sent = None if body is None else json.dumps(body)
        shown = {**self._headers, **(headers or {}), **({} if body is None else {"Content-Type": "application/json"})}
        opened = await session()
        try:
            async with opened.request(
                method, self._url + path, params=params, data=sent, headers=shown, timeout=limit, allow_redirects=False
            ) as reply:
                text = await reply.text(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerUnavailable(f"no configuration answers at {self._url}: {error or type(error).__name__}") from error
        return _answer(self._url, reply.status, text), reply.headers.get("ETag", "")


class RubricConfigClient:
    """The same for code that isn't async; use it in a `with` statement, or `close` it."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S, author: str | None = None) -> None:
        self._client = AsyncRubricConfigClient(url, token=token, timeout_s=timeout_s, author=author)
        self._thread = LoopThread("rubric-config-client")

    def get(self, *, pending: bool = False) -> Json:
        """Return the active configuration, or the one that holds from the next reset on, with its `config_version`."""
        return self._thread.run(self._client.get(pending=pending))

    def schema(self) -> Json:
        """Return the JSON schema of updates."""
        return self._thread.run(self._client.schema())

    def update(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        enabled: Mapping[str, bool] | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        apply: Applies | None = None,
        if_version: int | None = None,
    ) -> Json:
        """Change weights, switches or settings by the rubrics' names, all or none; return the server's answer."""
        return self._thread.run(self._client.update(weights, enabled=enabled, config=config, apply=apply, if_version=if_version))

    def post(self, body: Mapping[str, Any], if_match: str | None = None) -> Json:
        """Send an update as it is, in any of the forms that the server takes; return the server's answer."""
        return self._thread.run(self._client.post(body, if_match))

    def edit(self, change: Callable[[Json], Mapping[str, Any]], attempts: int = EDIT_ATTEMPTS) -> Json:
        """Send the update that `change` makes of the newest configuration; again where another client was faster."""
        return self._thread.run(self._client.edit(change, attempts))

    def close(self) -> None:
        """End its connections."""
        self._thread.close(_nothing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


async def _nothing() -> None:
    pass


def _answer(url: str, status: int, text: str) -> Json:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if status == 200 and isinstance(content, dict):
        return content
    error = content.get("error") if isinstance(content, dict) else None
    message = (
        error.get("message") if isinstance(error, dict) else f"it is no rubric configuration, or a broken one: {text[:200]!r}"
    )
    if status >= 500:
        raise ServerUnavailable(f"{url} answered {status}: {message:.1000}")
    raise RequestRejected(f"{url} refused this ({status}): {message:.1000}", status, text[:1000])
