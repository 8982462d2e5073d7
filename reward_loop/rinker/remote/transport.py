"""How requests get to a server and back: attempts until one is answered, and one way in which failures become errors of the tree.

Invariants: a redirect is never followed; a request is sent again only as it was, so that the server takes it for the same; the
API key is in no error and no log.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncGenerator, Collection, Generator, Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from reward_loop.errors import AuthenticationError, ConfigError, DataError, RequestFailedError
from reward_loop.limits.retry_after import retry_after_s
from reward_loop.rinker.remote.patience import Patience
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.wire.compression import ENCODING, decompressed
from reward_loop.rinker.wire.frames import FrameHead, read_frames

logger = logging.getLogger(__name__)

JSON = "application/json"

_PREFIX = "/api/v1"
_SHOWN = 500
_DONE = 200
_NOT_THERE = 404
_STILL_TO_COME = 408
_TOO_BUSY = 429


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Sends requests to one server. Of one event loop; makes its connections when the first is needed.

    A `path` is below the API's prefix, encoded as URLs are, with its query.
    """

    def __init__(self, base_url: str, api_key: str, settings: HttpSettings) -> None:
        self.url = _checked(base_url)
        self._base = str(self.url.with_path(self.url.raw_path.rstrip("/") + _PREFIX, encoded=True))
        self._settings = settings
        self._most = settings.max_reply_mb << 20
        self._headers = {"X-API-Key": api_key, "Accept-Encoding": ENCODING}
        self._client: aiohttp.ClientSession | None = None

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, may_be_pending: bool = False
    ) -> Answer:
        """Send a body (JSON, unless `headers` say otherwise). `may_be_pending`: an answer of 408 says that work goes on.

        Raises AuthenticationError for a key that the server does not know, RequestFailedError for any answer but 200, and where
        there is none for too long ("server").
        """
        wanted = (_DONE, _STILL_TO_COME) if may_be_pending else (_DONE,)
        return await self._send("POST", path, body, {"Content-Type": JSON, **(headers or {})}, wanted)

    async def get(self, path: str) -> Answer:
        """Ask for what is there. Raises as `post` does."""
        return await self._send("GET", path, None, {}, (_DONE,))

    async def delete(self, path: str) -> None:
        """Have what is there removed; it is no error where nothing is. Raises as `post` does."""
        # aiohttp sends it once more by itself where the answer is lost, and what is removed by then is not there any more.
        await self._send("DELETE", path, None, {}, (_DONE, _NOT_THERE))

    async def results(self, path: str, body: bytes) -> AsyncGenerator[tuple[FrameHead, bytes]]:
        """Send a body in JSON once, and give the results of the answer as they come.

        It ends early where the server can't be reached, refuses the request, or says what can't be read.
        """
        try:
            async with self._request("POST", path, body, {"Content-Type": JSON}) as response:
                if response.status == _DONE:
                    async for result in read_frames(response.content, self._most):
                        yield result
        except (aiohttp.ClientError, OSError, EOFError, ValueError, DataError) as error:
            logger.debug("path=%s ended early: %r", path, error)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    async def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], wanted: Collection[int]
    ) -> Answer:
        now = asyncio.get_running_loop().time
        patience = Patience(self._settings, now())
        while True:
            asked_s: float | None = None
            try:
                answer = await self._once(method, path, body, headers)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                problem = f"{self.url} can't be reached: {type(error).__name__}: {error}"
            else:
                if answer.status in wanted:
                    return answer
                if answer.status < 500 and answer.status not in (_STILL_TO_COME, _TOO_BUSY):
                    raise _refusal(path, answer)
                problem = f"{self.url}{path} answered {answer.status}: {_reason(answer)}"
                asked_s = retry_after_s(answer.headers)
            pause_s = patience.pause_s(now(), asked_s)
            if pause_s is None:
                tried = f"tried for {self._settings.unreachable_s} s (unreachable_s)"
                raise RequestFailedError(f"{problem}; {tried}", category="server")
            await asyncio.sleep(pause_s)

    async def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        async with self._request(method, path, body, headers) as response:
            try:
                raw = await _read(response, self._most)
                if response.headers.get("Content-Encoding") == ENCODING:
                    raw = decompressed(raw, self._most)
            except DataError as error:
                raise unreadable(error) from None
            return Answer(response.status, response.headers, raw)

    def _request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        url = URL(f"{self._base}{path}", encoded=True)
        # As a file: aiohttp sends those in pieces, and warns of large bodies that it can't.
        payload = None if body is None else io.BytesIO(body)
        return self._connected().request(method, url, data=payload, headers=headers, allow_redirects=False)

    def _connected(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._settings.attempt_s),
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
            )
        return self._client


def _checked(base_url: str) -> URL:
    try:
        url = URL(base_url)
    except ValueError as error:
        raise ConfigError(f"base_url={base_url!r} is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"base_url={base_url!r} must begin with http:// or https:// and name a host")
    return url


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > max_bytes:
            raise DataError(f"it has more than the {max_bytes} bytes that are read (max_reply_mb)")
        parts.append(part)
    return b"".join(parts)


def _refusal(path: str, answer: Answer) -> RequestFailedError | AuthenticationError:
    if answer.status in (401, 403):
        return AuthenticationError(f"the server refused the API key: {_reason(answer)}")
    return RequestFailedError(f"{path} answered {answer.status}: {_reason(answer)}", category="user")


def _reason(answer: Answer) -> str:
    text = answer.body[:_SHOWN].decode("utf-8", "replace")
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError):
        return text
    if not isinstance(fields, dict):
        return text
    said = fields.get("detail") or fields.get("error")
    return said[:_SHOWN] if isinstance(said, str) else text


def unreadable(error: DataError) -> RequestFailedError:
    """Return the error that an answer which can't be read stands for."""
    return RequestFailedError(f"the server's answer can't be read: {error.message}", category="server")


@contextlib.contextmanager
def asked_by_the_user() -> Generator[None]:
    """Turn a DataError of the block, in which a request is written, into RequestFailedError("user")."""
    try:
        yield
    except DataError as error:
        raise RequestFailedError(error.message, category="user") from None
