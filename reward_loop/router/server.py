"""The router: one listening address in front of all replicas.

Invariants: the loop that it runs in is never blocked by a client or a replica; deadlines are looked after by one sweep, not by a
timer per request.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from time import monotonic

from reward_loop.errors import RouterError
from reward_loop.router.attempt import may_be_resent
from reward_loop.router.dispatch import Dispatcher
from reward_loop.router.downstream import Downstream, Work
from reward_loop.router.exchange import Exchange
from reward_loop.router.fleet import Fleet, Pool
from reward_loop.router.local import ControlCall, Refusal
from reward_loop.router.memo import Memo
from reward_loop.router.model_name import model_named
from reward_loop.router.request_reader import Ask
from reward_loop.router.settings import RouterSettings
from reward_loop.router.upstream import JOIN_BYTES
from reward_loop.router.wire import AUTHORIZATION, REQUEST_ID, SESSION, STRIDE, ErrorType

Control = Callable[[str, str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], bytes]]]
"""Answers /admin… and /metrics: (method, path, query, headers by lower-case name, body) -> (status, headers, body)."""

SWEEP_S = 0.25
"""Seconds between two looks at the deadlines, at most."""
_LEAST_SWEEP_S = 0.005
_BACKLOG = 4096


class RouterServer:
    """Serves while it is started; `fleet` says to whom requests go. `control` answers /admin and /metrics."""

    def __init__(self, settings: RouterSettings, control: Control | None = None) -> None:
        self.settings = settings
        self.fleet = Fleet()
        self.control = control
        self.clients: set[Downstream] = set()
        self.draining = False
        self.max_body_bytes = settings.max_body_mb << 20
        self.now = monotonic()
        """The time of the last sweep: good enough for slow clients."""
        self._empty = asyncio.Event()
        self._closing = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._server_authorization = [b"Authorization", b": ", f"Bearer {settings.server_token}".encode(), b"\r\n"]
        self.plain_headers: set[bytes] = set()
        """Names of headers of requests that need no second look."""
        self.known_requests: Memo[bytes, tuple[Ask, int]] = Memo()
        """Heads that were parsed before, with the size of the body after them."""
        self._ids = _request_ids()

    async def start(self) -> tuple[str, int]:
        """Listen, and return host and port. Raises RouterError where that is impossible."""
        host, port = self.settings.host, self.settings.port
        try:
            listening = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
            )
        except OSError as error:
            raise RouterError(f"the router can't listen on {host} port {port}: {error}") from None
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(listening, started))
        await started
        bound: tuple[str, int] = listening.getsockname()[:2]
        return bound

    async def drain_and_close(self, timeout_s: float) -> None:
        """Refuse new connections, let what is in flight end within `timeout_s` seconds, then hang up."""
        if self._life is None:
            return
        self.draining = True
        self._server.close()
        for client in tuple(self.clients):
            client.leave()
        try:
            async with asyncio.timeout(timeout_s):
                if self.clients:
                    await self._empty.wait()
        except TimeoutError:
            for client in tuple(self.clients):
                client.abort()
            await self._empty.wait()
        self._closing.set()
        await self._life

    # ---- what clients' connections need

    def left(self, client: Downstream) -> None:
        """Forget a client."""
        self.clients.discard(client)
        if not self.clients and self.draining:
            self._empty.set()

    def count(self, kind: ErrorType) -> None:
        """Count an answer of the router's own."""
        answered = self.fleet.counters.answered
        answered[kind] = answered.get(kind, 0) + 1

    def is_control(self, target: bytes) -> bool:
        """Whether the router itself answers this."""
        return target.startswith((b"/admin", b"/metrics"))

    def ask(self, method: bytes, target: bytes, headers: list[bytes], marks: Mapping[int, bytes], keep: bool, old: bool) -> Ask:
        """Return what the head of a request means."""
        is_path = target.startswith(b"/") or target == b"*"
        local = self.is_control(target) or not is_path
        if self.settings.server_token is not None and not local:
            headers = headers + self._server_authorization
        head = b"".join((method, b" ", target, b" HTTP/1.1\r\n", *headers))
        named = REQUEST_ID in marks
        return Ask(
            method,
            target,
            headers,
            marks,
            keep and is_path,
            old,
            head,
            local,
            named,
            may_be_resent(method, target),
            method == b"HEAD",
        )

    def work(self, client: Downstream, ask: Ask, body: list[bytes], size: int) -> Work:
        """Return what answers a request."""
        if ask.local:
            return self._answered_here(client, ask, body)
        pool = self.fleet.only
        if pool is None:
            found = self._pool_of(client, ask.method, body)
            if isinstance(found, Refusal):
                return found
            pool = found
        dispatch = self._dispatch
        dispatch.counters.requests += 1
        end = b"\r\n" if ask.named else next(self._ids)
        request = [b"".join((ask.head, end, *body))] if size <= JOIN_BYTES else [ask.head + end, *body]
        key = dispatch.key(body, ask.marks.get(SESSION, b"")) if dispatch.policy.by_key else b""
        return Exchange(dispatch, client, pool, request, ask.resendable, ask.head_only, key)

    # ---- parts

    def _pool_of(self, client: Downstream, method: bytes, body: list[bytes]) -> Pool | Refusal:
        pools = self.fleet.pools
        if not pools:
            return Refusal(client, "no_replica", 503, "the router has no servers yet; add them by POST /admin/replicas")
        name = (model_named(body) if method == b"POST" and body else None) or self.settings.default_model
        if name in pools:
            return pools[name]
        what = "the request names no model" if name is None else f"there is no model {name!r:.200}"
        return Refusal(client, "unknown_model", 404, f"{what}; the router serves {sorted(pools)}")

    def _answered_here(self, client: Downstream, ask: Ask, body: list[bytes]) -> Work:
        if not self.is_control(ask.target):
            return Refusal(client, "bad_request", 400, f"the target must be a path, not {ask.target[:200]!r}")
        if self.control is None:
            return Refusal(client, "bad_request", 404, "this router has no control")
        path, _, query = ask.target.decode("latin-1").partition("?")
        text = [piece.decode("latin-1") for piece in ask.headers]
        named = {text[index].lower(): text[index + 2] for index in range(0, len(text), STRIDE)}
        named["authorization"] = ask.marks.get(AUTHORIZATION, b"").decode("latin-1")
        return ControlCall(client, self._tasks, self.control(ask.method.decode(), path, query, named, b"".join(body)))

    async def _live(self, listening: socket.socket, started: asyncio.Future[None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._dispatch = Dispatcher(self.settings, self.fleet, tasks)
            self._server = await asyncio.get_running_loop().create_server(
                lambda: Downstream(self), sock=listening, backlog=_BACKLOG
            )
            started.set_result(None)
            await self._sweep()
            self._dispatch.close()
            await asyncio.sleep(0)  # the connections that were just told to end do so in the loop's next round

    async def _sweep(self) -> None:
        settings = self.settings
        deadlines = (settings.total_timeout_s, settings.attempt_timeout_s, settings.head_timeout_s, settings.health_timeout_s)
        usual_s = min(SWEEP_S, *(deadline / 4 for deadline in deadlines))
        while not self._closing.is_set():
            after_s = self._dispatch.hedging.after_s
            pause_s = usual_s if after_s is None else min(usual_s, max(after_s / 4, _LEAST_SWEEP_S))
            try:
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()
            except TimeoutError:
                pass
            now = monotonic()
            elapsed_s, self.now = now - self.now, now
            self._dispatch.tick(now, elapsed_s)
            for client in tuple(self.clients):
                client.check(now)


def _request_ids() -> Iterator[bytes]:
    """Give one header after the other for requests that have none of their own, and the empty line after it."""
    prefix = b"X-Request-Id: %b-" % secrets.token_hex(4).encode()
    for count in itertools.count():
        yield prefix + b"%x\r\n\r\n" % count
