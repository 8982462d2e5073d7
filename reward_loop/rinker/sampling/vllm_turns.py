"""Whose turn it is at servers that hold one snapshot's weights at a time.

Invariants: calls of one snapshot run side by side, those of two never; a snapshot that is waited for is not overtaken by new
calls of the one that is served, so nobody waits for ever; all who wait for a snapshot go together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import Snapshot


@dataclass(eq=False)
class _Group:
    """Those who wait for a snapshot."""

    snapshot: Snapshot
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


class SnapshotTurns:
    """Gives turns; `serve` has the servers serve a snapshot. Made for one event loop."""

    def __init__(self, serve: Callable[[Snapshot], Awaitable[None]]) -> None:
        self._serve = serve
        self._served: str | None = None
        self._in_flight = 0
        self._groups: dict[str, _Group] = {}
        self._changing: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nobody waits."""
        return not self._in_flight and self._changing is None and not self._groups

    @asynccontextmanager
    async def of(self, snapshot: Snapshot) -> AsyncGenerator[None]:
        """Sample from the snapshot in the block, which raises what `serve` raises."""
        if self._groups or self._changing is not None or self._served != snapshot.id:
            await self._turn(snapshot)
        else:
            self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._next()

    def forget(self) -> None:
        """Have the next turn begin with `serve`: nobody knows what is served."""
        self._served = None

    async def close(self) -> None:
        """End a change that goes on."""
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.wait([self._changing])

    async def _turn(self, snapshot: Snapshot) -> None:
        """Wait for the snapshot's turn, and take part in it."""
        group = self._groups.setdefault(snapshot.id, _Group(snapshot))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiting.append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # its turn had come: it is counted
                self._in_flight -= 1
                self._next()
            raise

    def _next(self) -> None:
        if not self._in_flight and self._changing is None and self._groups:
            self._changing = asyncio.create_task(self._change(), name="change the served snapshot")

    async def _change(self) -> None:
        group = next(iter(self._groups.values()))
        error: Exception | None = None
        try:
            if self._served != group.snapshot.id:
                self._served = None
                await self._serve(group.snapshot)
                self._served = group.snapshot.id
        except asyncio.CancelledError:  # `close`; those who wait are not cancelled themselves
            error = RequestFailedError("the sampler is closed; build another one", category="server")
        except Exception as raised:  # noqa: BLE001 - whatever it is, those who wait get it
            error = raised
        # Taken out only now: who came meanwhile goes along.
        del self._groups[group.snapshot.id]
        self._changing = None
        for turn in group.waiting:
            if turn.done():
                continue
            if error is not None:
                turn.set_exception(error)
            else:
                self._in_flight += 1
                turn.set_result(None)
        self._next()
