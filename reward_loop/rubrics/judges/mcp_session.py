"""A connection to an MCP server that is made again whenever it breaks.

The SDK cancels the task that owns its client when the connection breaks, so a task of this module owns it, and callers only
submit. Invariants: a call whose connection broke is sent again, `retries` times at most and never after its deadline; a caller
that is cancelled leaves the session as it was; closing ends the owner, its child process, and every call under way.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.mcp_connection import ConnectionLost, McpConnection, Target, connected
from reward_loop.rubrics.judges.tool import Tool, ToolResult

T = TypeVar("T")

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass(eq=False, slots=True)
class _Link:
    """A connection in use, with the deadlines of the calls under way on it."""

    connection: McpConnection
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    calls: set[asyncio.Timeout] = field(default_factory=set[asyncio.Timeout])

    def drop(self) -> None:
        """Wake every call under way: the connection is no more."""
        self.broken.set()
        now = asyncio.get_running_loop().time()
        for deadline in self.calls:
            if not deadline.expired():
                deadline.reschedule(now)


class McpSession:
    """Calls tools at `target`; `check` raises ConfigError for tools that won't do, at the start and at each new connection."""

    def __init__(
        self, name: str, target: Target, check: Callable[[tuple[Tool, ...]], None], *, retries: int, connect_timeout_s: float
    ) -> None:
        self._name = name
        self._target = target
        self._check = check
        self._retries = retries
        self._connect_timeout_s = connect_timeout_s
        self._link: _Link | None = None
        self._changed = asyncio.Event()
        self._why = "not connected yet"
        self._owner: asyncio.Task[None] | None = None
        self.tools: tuple[Tool, ...] = ()
        """The tools of the connection in use, or of the last one."""

    async def open(self) -> None:
        """Connect. Raises ConfigError for tools that won't do, JudgeError where there is no connection in time."""
        # A context of its own: what the opener holds (a deadline, a ledger) is not the session's.
        self._owner = asyncio.create_task(self._own(), name=f"judge service {self._name}", context=contextvars.Context())
        try:
            await self._linked(asyncio.get_running_loop().time() + self._connect_timeout_s)
        except BaseException:  # cancelled too: no owner task or child process may stay behind
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection and the calls under way; a second call does nothing."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            await asyncio.wait([owner])

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        """Return what a tool gave. Raises JudgeError where the server can't be reached, or did not answer, within `timeout_s`."""
        until = asyncio.get_running_loop().time() + timeout_s
        try:
            for _ in range(self._retries + 1):
                link = await self._linked(until)
                try:
                    return await self._on(link, until, partial(link.connection.call, tool, arguments))
                except ConnectionLost as error:
                    await self._see_to(link, error, until)
        except TimeoutError:
            raise JudgeError(f"service {self._name}: {tool} did not answer within {timeout_s} s (timeout_s)") from None
        raise JudgeError(f"service {self._name}: {self._retries + 1} connections broke under this call; last: {self._why}")

    async def _on(self, link: _Link, until: float, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what comes of asking on a link; ConnectionLost where that breaks, TimeoutError where the time is over."""
        deadline = asyncio.timeout_at(until)
        try:
            async with deadline:
                link.calls.add(deadline)
                try:
                    return await ask()
                finally:
                    link.calls.discard(deadline)
        except TimeoutError:
            if link.broken.is_set():
                raise ConnectionLost(self._why) from None
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ConnectionLost(self._why) from None  # the SDK's own, not the caller's

    async def _see_to(self, link: _Link, lost: ConnectionLost, until: float) -> None:
        """Find out whether the server is gone, where only one request was lost: the others must not pay for it."""
        try:
            if not lost.only_this:
                raise lost
            await self._on(link, until, link.connection.tools)
        except (ConnectionLost, JudgeError) as error:
            self._why = str(error)
            link.broken.set()

    async def _linked(self, until: float) -> _Link:
        """Return the connection in use, waiting for the next one where there is none."""
        try:
            async with asyncio.timeout_at(until):
                while self._link is None or self._link.broken.is_set():
                    owner = self._owner
                    if owner is None:
                        raise JudgeError(f"service {self._name} is closed; open it again")
                    if owner.done():
                        await owner  # raises what ended it
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise JudgeError(f"service {self._name} can't be reached: {self._why}") from None
        return self._link

    async def _own(self) -> None:
        """Keep a connection until cancelled; ConfigError at the first one ends it."""
        failures = 0
        try:
            while True:
                since = asyncio.get_running_loop().time()
                try:
                    await self._keep()
                except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:  # all that may come of the SDK
                    task = asyncio.current_task()
                    if task is not None and task.cancelling():
                        raise
                    why = _innermost(error)
                    if isinstance(why, ConfigError) and not self.tools:
                        raise why from None
                    self._why = f"{type(why).__name__}: {why}"
                lasted = asyncio.get_running_loop().time() - since > _LONGEST_PAUSE_S
                failures = 0 if lasted else failures + 1
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures, 16)) * (0.5 + random.random() / 2)  # noqa: S311
                level = logging.WARNING if failures <= 1 else logging.DEBUG
                logger.log(level, "judge service %s: connection lost (%s); again in %.1f s", self._name, self._why, pause_s)
                await asyncio.sleep(pause_s)
        finally:
            self._changed.set()

    async def _keep(self) -> None:
        """Connect, and hold the connection until it breaks."""
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await stack.enter_async_context(connected(self._target))
                tools = await connection.tools()
            self._check(tools)
            self.tools = tools
            link = self._link = _Link(connection)
            self._changed.set()
            try:
                await link.broken.wait()
            finally:
                self._link = None
                link.drop()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
