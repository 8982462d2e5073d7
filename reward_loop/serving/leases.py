"""Who needs the servers awake, counted: the first lease wakes them, the end of the last one lets them sleep.

Invariants: one change (waking, falling asleep) is under way at a time, and runs to its end even if all who wait for it leave;
whoever holds a lease finds the servers awake; a wake that fails is reported to all who wait for it, and tried again for the
next lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

logger = logging.getLogger(__name__)

LeaseState = Literal["asleep", "waking", "awake", "sleeping"]
Change = Literal["wake", "sleep"]


@dataclass(slots=True)
class LeaseCount:
    """The pure part: what to do next, from how many leases there are and what the servers do."""

    state: LeaseState
    held: int = 0

    def begin(self) -> Change | None:
        """Enter the change that is due and return it; None where nothing is to be done, or a change is under way."""
        if self.held and self.state == "asleep":
            self.state = "waking"
            return "wake"
        if not self.held and self.state == "awake":
            self.state = "sleeping"
            return "sleep"
        return None

    def end(self, *, done: bool) -> None:
        """Leave the change. One that failed counts as asleep: waking is safe to do twice, asking a sleeping server is not."""
        self.state = "awake" if self.state == "waking" and done else "asleep"


class Leases:
    """Counts leases and calls `wake` and `sleep`; belongs to one event loop."""

    def __init__(self, wake: Callable[[], Awaitable[None]], sleep: Callable[[], Awaitable[None]], *, awake: bool) -> None:
        self._do: dict[Change, Callable[[], Awaitable[None]]] = {"wake": wake, "sleep": sleep}
        self._count = LeaseCount("awake" if awake else "asleep")
        self._change: asyncio.Task[Exception | None] | None = None
        self.announced = asyncio.Event()
        """Set by `wake` as soon as requests may be sent, which then wait; cleared by `sleep`."""

    @property
    def state(self) -> LeaseState:
        """What the servers do."""
        return self._count.state

    @property
    def held(self) -> int:
        """How many leases there are."""
        return self._count.held

    async def acquire(self) -> None:
        """Take a lease, and return when the servers are awake."""
        self._count.held += 1
        try:
            while self._count.state != "awake":
                waking = self._count.state in ("asleep", "waking")
                error = await self._next_change()
                if error is not None and waking:
                    raise error
        except BaseException:  # cancelled too: what was not taken must not keep the servers awake
            self._count.held -= 1
            if not self._count.held:  # with others left it would wake again what has just failed them
                self._start_change()
            raise

    async def release(self) -> None:
        """Give a lease back; the last one waits until the servers sleep, and raises what kept them from it."""
        self._count.held -= 1
        while not self._count.held and self._count.state != "asleep":
            sleeping = self._count.state in ("awake", "sleeping")
            error = await self._next_change()
            if error is not None and sleeping:
                raise error

    async def settle(self) -> None:
        """Bring the servers to where the leases want them: asleep, where there are none."""
        self._count.held += 1
        await self.release()

    async def _next_change(self) -> Exception | None:
        """Wait for the change that is under way, or due; it goes on if the waiting is cancelled."""
        change = self._start_change()
        return await asyncio.shield(change) if change is not None else None

    def _start_change(self) -> asyncio.Task[Exception | None] | None:
        if self._change is None and (change := self._count.begin()) is not None:
            self._change = asyncio.create_task(self._run(change), name=f"{change} the reward model")
        return self._change

    async def _run(self, change: Change) -> Exception | None:
        """Do it; then do what has become due meanwhile."""
        failure: Exception | None = None
        try:
            await self._do[change]()
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for the change raise it
            failure = error
            logger.warning("could not %s the reward model: %s", change, error)
        self._count.end(done=failure is None)
        self._change = None
        if failure is None:
            self._start_change()
        return failure


class Lease:
    """One lease. `give_back` belongs into a `finally`: it gives back what `take` took, also where that was cancelled."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._taking: asyncio.Task[None] | None = None

    async def take(self, *, ahead: bool = False) -> None:
        """Return when the servers are awake, or with `ahead` as soon as requests may wait for them; raises what waking raised."""
        taking = self._taking = asyncio.create_task(self._leases.acquire(), name="take a lease")
        announced = asyncio.create_task(self._leases.announced.wait(), name="wait until requests may be sent")
        try:
            await asyncio.wait([taking, announced] if ahead else [taking], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            taking.cancel()
            raise
        finally:
            announced.cancel()
        if taking.done():
            taking.result()

    async def give_back(self) -> None:
        """Return when nothing is held any more, the last lease when the servers sleep; raises what waking or sleeping raised."""
        if self._taking is None:
            return
        await asyncio.wait([self._taking])
        if not self._taking.cancelled():
            self._taking.result()
            await self._leases.release()
