"""The steps of an update, each told to all servers of a model side by side (the control plane's HTTP).

Invariants: a step either succeeded everywhere or raises WeightSyncError that names each server that failed and what it said;
every call has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import WeightSyncError
from reward_loop.sync.identity import Identity, identity_of
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.planes.plane import Ticket
from reward_loop.sync.server_call import Access, Answer, call
from reward_loop.sync.side_by_side import answers_of
from reward_loop.sync.training_mode import RewardModelTrainingMode

_GRACE_S = 2.0
"""Seconds in which the others may say what they have to say, once one has failed."""
_LOOK_S = 0.1
_QUICK_S = 30.0
"""Seconds for what a server answers without work."""
_UNREACHED_S = 30.0
"""Seconds that a server which can't be reached is waited for: one that crashed is soon back."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The servers of one model, at these URLs."""

    urls: tuple[str, ...]
    access: Access

    async def identities(self, timeout_s: float) -> list[Identity]:
        """Ask each who it is."""
        answers = await self._asked("GET", "/runtime_version", timeout_s=timeout_s, patient=True)
        _check("say which version they serve", [each for each in answers if each.status != 404])
        return [identity_of(answer) for answer in answers]

    async def identity(self, server: str, timeout_s: float) -> Identity | None:
        """Ask one server who it is; None where it can't say."""
        try:
            return identity_of(await self.ask(server, "GET", "/runtime_version", timeout_s=timeout_s))
        except WeightSyncError:
            return None

    async def start(self, session: str, session_s: float, trainer: str, timeout_s: float) -> None:
        """Claim all of them for an update that is over after `session_s` seconds.

        One comes before the others, the same one for all trainers: of two that begin together, one gets its way.
        """
        body = {"session": session, "timeout_s": session_s, "trainer": trainer}
        first, *others = sorted(self.urls)
        for urls in ([first], others):
            answers = await self._asked("POST", "/start_weight_update", body, timeout_s=min(timeout_s, _QUICK_S), urls=urls)
            _check("begin the update", answers)

    async def init(self, session: str, tickets: Sequence[Ticket], timeout_s: float) -> None:
        """Give each its ticket."""
        bodies = {
            url: {"init_info": {"session": session, "ticket": dict(ticket)}}
            for url, ticket in zip(self.urls, tickets, strict=True)
        }
        answers = await self._asked("POST", "/init_weight_transfer_engine", bodies=bodies, timeout_s=min(timeout_s, _QUICK_S))
        _check("join the update", answers)

    async def prepare(
        self, session: str, manifest: Manifest, mode: RewardModelTrainingMode, version: int, timeout_s: float
    ) -> None:
        """Have each check what is to come."""
        info = {"manifest": manifest.as_json(), "mode": mode.value, "version": version}
        _check("take these weights", await self._update("prepare", session, info, timeout_s))

    async def transfer(self, session: str, timeout_s: float) -> dict[str, tuple[str, ...]]:
        """Have each receive; return the digests that each made of what it received."""
        answers = await self._update("transfer", session, {}, timeout_s)
        _check("receive the weights", answers)
        return {each.server: tuple(map(str, each.body.get("digests") or ())) for each in answers}

    async def finish(self, session: str, version: int, drain_timeout_s: float, timeout_s: float) -> list[Answer]:
        """Have each serve what it received; every answer is waited for, and none is raised."""
        body = {"session": session, "weight_version": str(version), "drain_timeout_s": drain_timeout_s}
        return await answers_of(
            {url: self.ask(url, "POST", "/finish_weight_update", body, timeout_s=timeout_s) for url in self.urls}
        )

    async def abort(self, session: str, timeout_s: float) -> list[Answer]:
        """Have each drop what it received; none is raised: a server that can't be reached ends the session by itself."""
        body = {"update_info": {"phase": "abort", "session": session}}
        return await answers_of({url: self.ask(url, "POST", "/update_weights", body, timeout_s=timeout_s) for url in self.urls})

    async def revert(self, server: str, session: str, trainer: str, drain_timeout_s: float, timeout_s: float) -> Answer:
        """Have one server serve again what it served before its last update."""
        claim = {"session": session, "timeout_s": timeout_s, "trainer": trainer}
        answer = await self.ask(server, "POST", "/start_weight_update", claim, timeout_s=min(timeout_s, _QUICK_S))
        if not answer.good:
            return answer
        body = {"session": session, "revert": True, "drain_timeout_s": drain_timeout_s}
        return await self.ask(server, "POST", "/finish_weight_update", body, timeout_s=timeout_s)

    async def ask(self, server: str, method: str, path: str, body: object = None, *, timeout_s: float) -> Answer:
        """Ask one server for anything."""
        return await call(server, method, path, body, access=self.access, timeout_s=timeout_s)

    async def _update(self, phase: str, session: str, info: Mapping[str, Any], timeout_s: float) -> list[Answer]:
        body = {"update_info": {"phase": phase, "session": session, **info}}
        return await self._asked("POST", "/update_weights", body, timeout_s=timeout_s)

    async def _asked(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout_s: float,
        urls: Sequence[str] | None = None,
        bodies: Mapping[str, object] | None = None,
        patient: bool = False,
    ) -> list[Answer]:
        ask = self._patiently if patient else self.ask
        chosen = self.urls if urls is None else urls
        calls = {url: ask(url, method, path, body if bodies is None else bodies[url], timeout_s=timeout_s) for url in chosen}
        return await answers_of(calls, _GRACE_S)

    async def _patiently(self, server: str, method: str, path: str, body: object = None, *, timeout_s: float) -> Answer:
        """Ask again, for a while, a server that can't be reached."""
        clock = asyncio.get_running_loop().time
        until = clock() + min(timeout_s, _UNREACHED_S)
        while True:
            answer = await self.ask(server, method, path, body, timeout_s=max(0.01, until - clock()))
            if not answer.lost or clock() + _LOOK_S >= until:
                return answer
            await asyncio.sleep(_LOOK_S)


def _check(what: str, answers: Iterable[Answer]) -> None:
    """Raise WeightSyncError unless every server did it."""
    given = list(answers)
    if bad := [answer for answer in given if not answer.good]:
        raise WeightSyncError(f"{len(bad)} of {len(given)} servers did not {what}: {'; '.join(map(str, bad))}")
