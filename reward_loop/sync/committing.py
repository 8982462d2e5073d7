"""All servers serve what they received, or none of them.

A server that fails to serve new weights keeps the old ones by itself; those that did are told to take the update back. Of one
that was lost in the middle only it can say, once it is there again, what it serves.

Invariants: it runs to its end though who waits for it is cancelled; it ends, with a report or WeightSyncError, within the drain's
limit and twice `timeout_s`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from reward_loop.errors import WeightSyncError
from reward_loop.sync.replicas import Replicas
from reward_loop.sync.report import ReplicaReport
from reward_loop.sync.server_call import Answer
from reward_loop.sync.side_by_side import answers_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S = 0.1
_ASK_S = 5.0
_FIRST_ASK_S = 1.0
"""Seconds that a server has to say what it serves before the others go back: its connection broke, or it failed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of one update: `version` in place of what `before` says that each server serves."""

    replicas: Replicas
    session: str
    trainer: str
    version: int
    before: Mapping[str, int]
    drain_timeout_s: float
    timeout_s: float

    async def run(self) -> tuple[ReplicaReport, ...]:
        """Return what each server says of it; raises WeightSyncError once none serves the new weights."""
        limit_s = self.drain_timeout_s + self.timeout_s
        until = _now() + limit_s
        answers = await self.replicas.finish(self.session, self.version, self.drain_timeout_s, limit_s)
        done = {answer.server: _report(answer) for answer in answers if answer.good}
        bad = [answer for answer in answers if not answer.good]
        # A connection may break after the server has committed. One that is there says at once what it serves.
        found = dict(zip([each.server for each in bad], await self._versions(bad, min(_FIRST_ASK_S, limit_s)), strict=True))
        done |= {server: ReplicaReport(server) for server, version in found.items() if self._is_new(server, version)}
        failed = [answer for answer in bad if answer.server not in done]
        if not failed:
            return tuple(done[url] for url in self.replicas.urls)
        gone = [answer for answer in failed if found[answer.server] is None]
        raise WeightSyncError(await self._taken_back(list(done), gone, failed, until))

    def _is_new(self, server: str, version: int | None) -> bool:
        return version == self.version != self.before[server]

    async def _taken_back(self, done: list[str], gone: list[Answer], failed: list[Answer], until: float) -> str:
        """Take the update back where it was committed; return what happened, for people."""
        # One that was never asked, because the connection broke first, still waits for the commit.
        there = [answer.server for answer in failed if answer not in gone]
        await Replicas(tuple(there), self.replicas.access).abort(self.session, _ASK_S)
        failures = await self._reverted(done)
        # Those who can be asked came first: one that is gone may take its time to be back.
        back = dict(zip([each.server for each in gone], await self._versions(gone, until - _now()), strict=True))
        late = [server for server, version in back.items() if self._is_new(server, version)]
        failures += await self._reverted(late)
        unsure = [*map(str, failures), *(f"{server} is still away" for server, version in back.items() if version is None)]
        taken = {*done, *late} - {answer.server for answer in failures}
        parts = [
            f"version {self.version} {'may be served by some' if unsure else 'is served nowhere'}: "
            f"{len(failed)} of {len(self.replicas.urls)} servers did not begin to serve it",
            *map(str, failed),
        ]
        if taken:
            parts.append(f"it was taken back at {', '.join(sorted(taken))}")
        if unsure:
            parts += [*unsure, "once they are there, publish everything (training_mode=full)"]
        return "; ".join(parts)

    async def _reverted(self, servers: list[str]) -> list[Answer]:
        """Take the update back at these; return the answers of those that did not."""
        calls = {
            server: self.replicas.revert(server, uuid4().hex, self.trainer, self.drain_timeout_s, self.timeout_s)
            for server in servers
        }
        return [answer for answer in await answers_of(calls) if not answer.good]

    async def _versions(self, answers: list[Answer], timeout_s: float) -> list[int | None]:
        """Return what each of these serves, once it is there and about nothing else; None for those that are not in time."""
        until = _now() + timeout_s

        async def version_of(server: str) -> int | None:
            while True:
                identity = await self.replicas.identity(server, max(0.01, min(_ASK_S, until - _now())))
                if identity is not None and identity.busy is None:
                    return identity.version
                if _now() + _LOOK_S >= until:
                    return None
                await asyncio.sleep(_LOOK_S)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(version_of(answer.server)) for answer in answers]
        return [task.result() for task in tasks]


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it; who is cancelled meanwhile is so only once it has ended."""
    task = asyncio.create_task(work, name="commit")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the update that was interrupted failed: %s", error)
        raise


def _report(answer: Answer) -> ReplicaReport:
    def seconds(name: str) -> float | None:
        value = answer.body.get(name)
        return float(value) if isinstance(value, int | float) else None

    return ReplicaReport(answer.server, seconds("drain_s"), seconds("pause_s"), seconds("commit_s"))


def _now() -> float:
    return asyncio.get_running_loop().time()
