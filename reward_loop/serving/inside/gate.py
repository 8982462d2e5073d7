"""The gate before the model: what computes passes it, and it closes while weights are exchanged.

Three states: open; draining (what is new waits, what is in flight goes on); closed (nothing computes, and nobody changes whether
the engine runs). Invariants: no clock but the bound of a drain; whoever closes it opens it again, whatever happens between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from reward_loop.serving.inside.reply import Refusal


class Gate:
    """Counts what is in flight; made and used in one event loop."""

    def __init__(self) -> None:
        self.in_flight = 0
        """Requests that need the model, from their entry to the end of their reply."""
        self._controls = 0
        self._open = _set_event()
        self._controllable = _set_event()
        self._idle = _set_event()
        self._drained: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def passed(self) -> AsyncGenerator[None]:
        """Compute in the block, which begins when the gate is open."""
        while not self._open.is_set():  # it may close again before this one's turn
            await self._open.wait()
        self.in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._idle.set()
            self._look()

    @asynccontextmanager
    async def controlled(self) -> AsyncGenerator[None]:
        """Pause, resume, put to sleep or wake the engine in the block, which begins when no weights are being exchanged."""
        while not self._controllable.is_set():
            await self._controllable.wait()
        self._controls += 1
        try:
            yield
        finally:
            self._controls -= 1
            self._look()

    async def idle(self) -> None:
        """Return when nothing is in flight."""
        await self._idle.wait()

    @asynccontextmanager
    async def closed(self, within_s: float) -> AsyncGenerator[None]:
        """Let nothing new in and wait until all else has ended; raises Refusal (503) if it has not within `within_s`."""
        if self._drained is not None:
            raise RuntimeError("the gate is closed already: one update is committed at a time")
        self._drained = asyncio.get_running_loop().create_future()
        self._open.clear()
        self._look()
        try:
            try:
                async with asyncio.timeout(within_s):
                    await self._drained
            except TimeoutError:
                raise self._not_drained(within_s) from None
            yield
        finally:
            self._drained = None
            self._controllable.set()
            self._open.set()

    def give_up(self, why: Refusal) -> None:
        """End a drain, which raises `why`; does nothing at any other time."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(why)

    def _look(self) -> None:
        if self._drained is not None and not (self._drained.done() or self.in_flight or self._controls):
            self._controllable.clear()
            self._drained.set_result(None)

    def _not_drained(self, within_s: float) -> Refusal:
        paused = f" and {self._controls} calls that pause, wake or put to sleep" if self._controls else ""
        return Refusal(
            503,
            "not_drained",
            f"{self.in_flight} requests{paused} were still in flight after drain_timeout_s={within_s:g}; nothing was committed. "
            "Allow more time, or POST /resume if the engine was paused",
        )


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
