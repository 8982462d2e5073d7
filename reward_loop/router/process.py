"""The router as its owner has it: a process of its own, kept running, and told what to do.

Invariants: from `start` to `stop` there is one router at one address; when its process dies another one takes its place there,
with the same replicas in the same states; what was asked for meanwhile is done by the new one. All of it belongs to one loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Any, Self

import aiohttp

from reward_loop.errors import RouterError
from reward_loop.router.admin import ask_admin
from reward_loop.router.child import RouterChild
from reward_loop.router.control import DEFAULT_WAIT_S
from reward_loop.router.fleet import Fleet, Replica
from reward_loop.router.settings import RouterSettings

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.1, 5.0
_STABLE_S = 30.0
_KILL_AFTER_S = 1.0


class RouterProcess:
    """A router with these settings; a context manager, or `start` and `stop`.

    Every method raises RouterError where the router refuses, does not answer in time, or was given up: after `max_crashes` in a
    row, with less than half a minute between them.
    """

    def __init__(self, settings: RouterSettings, *, start_timeout_s: float = 30.0, max_crashes: int = 10) -> None:
        self._settings = replace(settings, admin_token=settings.admin_token or secrets.token_urlsafe())
        self._start_timeout_s = start_timeout_s
        self._max_crashes = max_crashes
        self._wanted = Fleet()
        """The replicas as they should be, for the next process."""
        self._child: RouterChild | None = None
        self._changed = asyncio.Condition()
        self._keeper: asyncio.Task[None] | None = None
        self._given_up = ""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """Start the process and return when it listens."""
        if self._keeper is not None:
            raise RouterError(f"the router was started already, at {self.address}")
        child = await RouterChild.start(self._settings, self._wanted, self._start_timeout_s)
        self._given_up = ""
        self._settings = replace(self._settings, port=child.port)
        self._child = child
        self._keeper = asyncio.create_task(self._keep(child), name="router-keeper")
        logger.info("router pid=%d address=%s policy=%s", child.pid, self.address, self._settings.policy)

    async def stop(self, timeout_s: float | None = None) -> None:
        """Let what is in flight end, for at most `timeout_s` seconds (None: `drain_timeout_s`), and end the process."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        child, self._child = self._child, None
        if child is not None:
            await child.stop(self._settings.drain_timeout_s + _KILL_AFTER_S if timeout_s is None else timeout_s)
        keeper.cancel()
        await asyncio.wait([keeper])
        await self._becomes(None)

    async def wait(self) -> None:
        """Wait until the router was stopped; RouterError when it was given up."""
        if self._keeper is not None:
            await asyncio.wait([self._keeper])
            self._check_kept()

    @property
    def address(self) -> str:
        """host:port, the same for as long as it runs; an IPv6 host in brackets."""
        if self._keeper is None and self._child is None:
            raise RouterError("the router is not running; start it first")
        host, port = self._settings.host, self._settings.port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def token(self) -> str:
        """The bearer token of /admin."""
        return self._settings.admin_token or ""

    @property
    def pid(self) -> int | None:
        """The id of the process that is the router now; None while there is none."""
        return None if self._child is None else self._child.pid

    async def add(self, model: str, url: str) -> None:
        """Take in the server at "http://host:port"; it gets requests once it has answered a health check."""
        replica = self._wanted.add(model, url)
        try:
            await self._tell("POST", "/admin/replicas", {"model": model, "url": replica.url})
        except RouterError:
            self._wanted.remove(replica.url)
            raise

    async def remove(self, url: str) -> None:
        """Forget a server; what it has in flight may end."""
        replica = self._wish(self._wanted.remove, url)
        await self._tell("DELETE", "/admin/replicas", {"url": replica.url})

    async def waking(self, url: str) -> None:
        """Let requests wait for a server that sleeps and is about to be awake."""
        replica = self._wish(self._wanted.waking, url)
        await self._tell("POST", "/admin/replicas/waking", {"url": replica.url})

    async def wake(self, url: str) -> None:
        """Let a server that was drained or asleep get requests again."""
        replica = self._wish(self._wanted.wake, url)
        await self._tell("POST", "/admin/replicas/wake", {"url": replica.url})

    async def drain(self, url: str, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """Send a server nothing more, and return when it has nothing in flight."""
        await self._empty("drain", self._wish(self._wanted.drain, url), timeout_s)

    async def sleep(self, url: str, timeout_s: float = DEFAULT_WAIT_S) -> None:
        """The same for a server that is about to sleep: requests are refused as `asleep` when all of its model are."""
        await self._empty("sleep", self._wish(self._wanted.sleep, url), timeout_s)

    async def snapshot(self) -> dict[str, Any]:
        """Return {"replicas": [{"model", "url", "state", "in_flight", …}], "waiting": {model: requests}}."""
        answer = await self._ask("GET", "/admin/replicas")
        return answer if answer is not None else await self.snapshot()

    def _wish(self, change: Callable[[str], Replica], url: str) -> Replica:
        try:
            return change(url)
        except KeyError:
            raise RouterError(f"no replica is at {url!r:.200}; there are {[known.url for known in self._wanted]}") from None

    async def _tell(self, method: str, path: str, order: dict[str, Any]) -> None:
        await self._ask(method, path, order)  # None: the process died, and the next one was started with what is wanted

    async def _empty(self, how: str, replica: Replica, timeout_s: float) -> None:
        order = {"url": replica.url, "timeout_s": timeout_s}
        # When the process died, so did what was in flight, unless clients have sent it again: ask once more.
        while await self._ask("POST", f"/admin/replicas/{how}", order, wait_s=timeout_s) is None:
            continue

    async def _ask(
        self, method: str, path: str, order: dict[str, Any] | None = None, wait_s: float = 0.0
    ) -> dict[str, Any] | None:
        """Return the router's answer; None, once there is a new process, when the one that was asked died first."""
        child = await self._other_than(None)
        try:
            return await ask_admin(self.address, self.token, method, path, order, wait_s)
        except aiohttp.ClientConnectionError:
            await self._other_than(child)
            return None

    async def _other_than(self, gone: RouterChild | None) -> RouterChild:
        """Return the process, once there is one that is not `gone`."""
        try:
            async with asyncio.timeout(self._start_timeout_s), self._changed:
                while self._child is None or self._child is gone:
                    self._check_kept()
                    await self._changed.wait()
                return self._child
        except TimeoutError:
            raise RouterError(f"the router at {self.address} can't be reached for {self._start_timeout_s:g} s") from None

    def _check_kept(self) -> None:
        if self._keeper is None:
            raise RouterError("the router is not running; start it first")
        if self._given_up:
            raise RouterError(self._given_up)

    async def _becomes(self, child: RouterChild | None) -> None:
        async with self._changed:
            self._child = child
            self._changed.notify_all()

    async def _keep(self, child: RouterChild) -> None:
        """Start the router again whenever it ends, until there were too many crashes in a row."""
        crashes = 0
        while True:
            since = monotonic()
            code = await child.run()
            crashes = 1 if monotonic() - since > _STABLE_S else crashes + 1
            if self._child is None:
                return  # `stop` ended it
            self._child = None
            try:
                child = await self._start_again(code, crashes)
            except RouterError as error:
                self._given_up = error.message
                logger.critical("%s", error)
                await self._becomes(None)
                return
            await self._becomes(child)
            logger.info("router pid=%d address=%s replicas=%d: back", child.pid, self.address, len(self._wanted))

    async def _start_again(self, code: int, crashes: int) -> RouterChild:
        """Return the next process; RouterError after too many crashes."""
        ended = f"the router at {self.address} ended with code {code}"
        while crashes <= self._max_crashes:
            backoff_s = min(_FIRST_BACKOFF_S * 2 ** (crashes - 1), _LONGEST_BACKOFF_S) if crashes > 1 else 0.0
            logger.error("%s; starting it again in %g s", ended, backoff_s)
            await asyncio.sleep(backoff_s)
            try:
                return await RouterChild.start(self._settings, self._wanted, self._start_timeout_s)
            except RouterError as error:
                ended, crashes = error.message, crashes + 1
        raise RouterError(f"given up after {crashes - 1} crashes in a row: {ended}")
