"""GET and POST /config on a running pipeline: a small aiohttp server of its own, or routes in an application of the user's.

Paths are next to those of an OpenEnv server and clash with none. Invariants: without a token only this machine can reach it, and
no web page that its user happens to look at; a request never holds up another one; nothing that is refused changes anything.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from reward_loop.errors import ConfigError, SchemaVersionError
from reward_loop.limits.address import is_loopback
from reward_loop.rubrics.body_schema import body_schema
from reward_loop.rubrics.config_http import (
    MAX_BODY,
    Reply,
    accepted_reply,
    active_reply,
    error_reply,
    follow_reply,
    matched_version,
    parse_body,
    pending_reply,
    refusal_reply,
)
from reward_loop.rubrics.live_config import LiveConfig
from reward_loop.rubrics.refusal import ConfigRefused, refused

logger = logging.getLogger(__name__)

BODY_S = 30.0
"""Seconds in which a body must have come."""
LONGEST_WAIT_S = 120.0
"""The longest that a request may wait for a change."""
MOST_WAITING = 1024
AUTHOR = "X-Config-Author"
"""The header by which a client may say who it is, for the audit."""


@dataclass(slots=True)
class ConfigRoutes:
    """The handlers for one live configuration; `mount` adds them to an application."""

    live: LiveConfig
    token: str | None = None
    _waiting: set[asyncio.Event] = field(default_factory=set[asyncio.Event])
    _closed: bool = False

    def mount(self, app: web.Application, prefix: str = "") -> None:
        """Add /config and /config/schema below a prefix."""
        app.router.add_route("*", f"{prefix}/config", self._answering(self._config))
        app.router.add_route("*", f"{prefix}/config/schema", self._answering(self._schema))
        app.on_shutdown.append(self._close)

    async def _close(self, app: web.Application) -> None:
        """Answer those who wait for a change, for whom an application that ends would wait."""
        del app
        self._closed = True
        for event in self._waiting:
            event.set()

    def _answering(self, handler: Callable[[web.Request], Awaitable[Reply]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                reply = self._stranger(request) or await handler(request)
            except (ConfigRefused, SchemaVersionError) as error:
                reply = refusal_reply(error)
            return _response(reply)

        return handle

    def _stranger(self, request: web.Request) -> Reply | None:
        """Refuse who has no token; where there is none, a page in a browser, which may ask in its user's name."""
        if self.token is None:
            if "Origin" in request.headers:
                return error_reply(403, "forbidden", "requests of web pages are refused; serve with a token to allow them")
            return None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), self.token.encode())
        if scheme.lower() == "bearer" and known:
            return None
        wanted = {"WWW-Authenticate": "Bearer"}
        return error_reply(401, "unauthorized", "show the token: Authorization: Bearer …", wanted)

    async def _config(self, request: web.Request) -> Reply:
        if request.method == "POST":
            return await self._update(request)
        if request.method not in ("GET", "HEAD"):
            return _wrong_method(request, "GET, HEAD, POST")
        if "after" in request.query:
            if len(self._waiting) >= MOST_WAITING:
                return error_reply(429, "too_many", f"{MOST_WAITING} requests wait for a change already", {"Retry-After": "1"})
            await self._news(int(_number(request, "after", "")), _number(request, "wait_s", "0"))
            return follow_reply(self.live.state)
        pending = request.query.get("pending", "0")
        if pending not in ("0", "1"):
            raise refused("bad_value", f"pending must be 0 or 1; it is {pending!r:.100}")
        return pending_reply(self.live.state) if pending == "1" else active_reply(self.live.state)

    async def _schema(self, request: web.Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            return _wrong_method(request, "GET, HEAD")
        return Reply(200, body_schema(self.live.pending, self.live.updateable))

    async def _update(self, request: web.Request) -> Reply:
        body = await _read(request)
        if isinstance(body, Reply):
            return body
        patch, wanted = parse_body(body), matched_version(request.headers.get("If-Match"))
        # In a thread, since it waits for the disk, and who reads must not.
        try:
            accepted = await asyncio.to_thread(self.live.propose, patch, wanted, now=time.time(), who=_author(request))
        except OSError as error:
            logger.error("config change not recorded: %s", error)
            return error_reply(503, "not_recorded", f"the change can't be written down ({error}), so it was not made")
        logger.info("config version=%d applies=%s who=%s", accepted.version, accepted.applies, _author(request))
        return accepted_reply(accepted)

    async def _news(self, known: int, wait_s: float) -> None:
        """Return when the latest version is another one, or the time is up."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        unwatch = self.live.watch(lambda: None if loop.is_closed() else loop.call_soon_threadsafe(changed.set))
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(min(wait_s, LONGEST_WAIT_S)):
                while self.live.latest_version == known and not self._closed:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(changed)
            unwatch()


class ConfigServer:
    """Serves one live configuration while it is entered; `port` 0 takes a free one. OSError if the port is taken.

    Raises ConfigError for a port that is none, and for a host that others can reach where there is no token.
    """

    def __init__(self, live: LiveConfig, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        if token is None and not is_loopback(host):
            raise ConfigError(f"host={host!r} can be reached from other machines; give a token (token_env), or take 127.0.0.1")
        if not 0 <= port < 65_536:
            raise ConfigError(f"port={port} must be between 0 (any free one) and 65535")
        self.live = live
        self.host = host
        self.port = port
        self._token = token
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Where it answers: http://host:port."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        ConfigRoutes(self.live, self._token).mount(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        async with AsyncExitStack() as stack:
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, self.host, self.port).start()
            self._stack = stack.pop_all()
        self.port = int(runner.addresses[0][1])
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


async def _read(request: web.Request) -> bytes | Reply:
    """Read a body up to its limit; aiohttp's own limit is the application's, which may be the user's."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_chunked(1 << 16):
                body += chunk
                if len(body) > MAX_BODY:
                    return error_reply(413, "too_large", f"a body may have {MAX_BODY} bytes at most", {"Connection": "close"})
    except TimeoutError:
        return error_reply(408, "too_slow", f"the body did not come within {BODY_S:g} s", {"Connection": "close"})
    except (HttpProcessingError, web.RequestPayloadError) as error:
        return error_reply(400, "not_json", f"the body can't be read: {error}", {"Connection": "close"})
    return bytes(body)


def _wrong_method(request: web.Request, allowed: str) -> Reply:
    message = f"{request.path} takes {allowed}, not {request.method:.20}"
    return error_reply(405, "method_not_allowed", message, {"Allow": allowed})


def _number(request: web.Request, name: str, default: str) -> float:
    text = request.query.get(name, default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e15:
        raise refused("bad_value", f"{name} must be a number, 0 or more; it is {text!r:.100}")
    return number


def _author(request: web.Request) -> str:
    named = request.headers.get(AUTHOR, "")
    return named[:64] if named and named.isprintable() else str(request.remote)


def _response(reply: Reply) -> web.Response:
    body = json.dumps(reply.content, allow_nan=False).encode()
    return web.Response(
        status=reply.status, body=body, headers={**reply.headers, "Cache-Control": "no-store"}, content_type="application/json"
    )
