"""Health checks: who is ready, who is gone and who is back, found out while no client waits for it.

A replica that starts is active after its first reply, one that is ejected gets a trial, and one that is active and fails a check
is ejected. What is draining or asleep is left alone.

Invariants: the decisions (`Schedule`, `judge`) are pure; a replica has one check at a time; whoever answered anything else while
a check waited for its answer is busy, not hung.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

import httptools

from reward_loop.router.fleet import Fleet, Replica
from reward_loop.router.probe import ask_health
from reward_loop.router.settings import RouterSettings

logger = logging.getLogger(__name__)

_CHECKED = ("starting", "active", "ejected")
_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a check found wrong; `answers`: the replica does answer, so it is better than nobody."""

    text: str
    answers: bool = False


def judge(answer: int | Exception, *, progressed: bool, timeout_s: float) -> Trouble | None:
    """Return what is wrong with a replica that answered a check with this status or failed with this error; None if nothing.

    A server without /health (404) or with a guarded one (401) is well: it answers. `progressed`: it answered a request meanwhile.
    """
    match answer:
        case int():
            return None if answer < 500 else Trouble(f"answers GET /health with {answer}", answers=True)
        case TimeoutError():
            return None if progressed else Trouble(f"no answer to GET /health within {timeout_s:g} s")
        case ConnectionRefusedError():
            return Trouble("refuses connections")
        case httptools.HttpParserError():
            return Trouble(f"does not speak HTTP: {answer}")
        case _:
            return Trouble(str(answer) or type(answer).__name__)


class Schedule:
    """When which replica is due: at once when it is new, then `interval_s` seconds after the start of the check before."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due_at: dict[Replica, float] = {}
        self._running: set[Replica] = set()

    def take_due(self, replicas: Iterable[Replica], now: float) -> list[Replica]:
        """Return whom to check now; each counts as being checked until `ended`."""
        checked = [replica for replica in replicas if replica.state in _CHECKED]
        self._due_at = {replica: self._due_at.get(replica, now) for replica in checked}
        due = [replica for replica in checked if self._due_at[replica] <= now and replica not in self._running]
        for replica in due:
            self._due_at[replica] = now + self._interval_s
            self._running.add(replica)
        return due

    def ended(self, replica: Replica) -> None:
        """Note that a check is over."""
        self._running.discard(replica)


class Health:
    """Checks the replicas of a fleet for as long as `run` runs."""

    def __init__(self, fleet: Fleet, settings: RouterSettings) -> None:
        self._fleet = fleet
        self._settings = settings
        self._schedule = Schedule(settings.health_interval_s)

    async def run(self) -> None:
        """Check until cancelled."""
        async with asyncio.TaskGroup() as checks:
            while True:
                for replica in self._schedule.take_due(self._fleet, monotonic()):
                    checks.create_task(self._check(replica))
                await asyncio.sleep(min(_TICK_S, self._settings.health_interval_s))

    async def _check(self, replica: Replica) -> None:
        began = monotonic()
        answer: int | Exception
        try:
            answer = await ask_health(
                replica.host, replica.port, token=self._settings.server_token, timeout_s=self._settings.health_timeout_s
            )
        except (OSError, httptools.HttpParserError) as error:  # TimeoutError is an OSError
            answer = error
        finally:
            self._schedule.ended(replica)
        trouble = judge(answer, progressed=replica.last_ok_at > began, timeout_s=self._settings.health_timeout_s)
        self._apply(replica, trouble)

    def _apply(self, replica: Replica, trouble: Trouble | None) -> None:
        """Tell the fleet, unless the replica was removed, drained or put to sleep meanwhile."""
        before = replica.state
        if before not in _CHECKED:
            return
        if trouble is None:
            if before != "active":
                # Who answers checks but no requests comes and goes with every check: that is worth no line each time.
                level = logging.DEBUG if before == "ejected" and replica.answers else logging.INFO
                self._fleet.probed(replica.url)
                logger.log(level, "replica=%s model=%s state=%s was=%s", replica.url, replica.model, replica.state, before)
            return
        if before != "ejected":
            logger.warning("replica=%s model=%s state=ejected was=%s: %s", replica.url, replica.model, before, trouble.text)
        self._fleet.eject(replica, trouble.text, answers=trouble.answers)
