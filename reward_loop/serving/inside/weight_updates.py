"""Updates of the weights that this server scores with, step by step, from the claim to the commit.

Invariants: one session at a time; a session that fails, is aborted or runs out of time leaves the old weights serving, the gate
open and the engine as it was; a commit that has begun runs to its end, whoever hangs up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from reward_loop.serving.inside.background import Background
from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.reply import Refusal, bad_request
from reward_loop.serving.inside.residence import Residence
from reward_loop.serving.inside.update_directory import Record, Status, UpdateDirectory
from reward_loop.serving.inside.update_engine import EngineFailed, UpdateEngine
from reward_loop.serving.inside.update_session import Step, UpdateSession, UpdateSlot

logger = logging.getLogger(__name__)

_POLL_S = 0.01
"""Seconds between two looks at how a transfer stands: a small file, read some 50 µs long."""
_PAUSE_S = 1.0
"""Seconds that the engine has at least to be paused once nothing is in flight."""

Timings = Mapping[str, float]


class WeightUpdates:
    """The sessions of this server; `clock` gives seconds and never goes back."""

    def __init__(
        self,
        engine: UpdateEngine,
        directory: UpdateDirectory,
        gate: Gate,
        residence: Residence,
        background: Background,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._directory = directory
        self._gate = gate
        self._residence = residence
        self._background = background
        self._clock = clock
        self._slot = UpdateSlot()
        self._record = directory.record()
        self._alarm: asyncio.TimerHandle | None = None
        self._committing: asyncio.Task[Timings] | None = None

    @property
    def version(self) -> int:
        """The version that serves."""
        return self._record.version

    def busy(self) -> str | None:
        """Say who updates the weights; None if nobody does."""
        session = self._slot.session
        return None if session is None else session.describe(self._clock())

    async def announce(self) -> None:
        """Tell the engine which version serves, for vLLM's own GET /weight_info, where it is not the checkpoint's."""
        if self._record.updated:
            await self._engine.name_version(_label(self._record))

    async def start(self, name: str, trainer: str, timeout_s: float) -> None:
        """Claim the server; raises Refusal: 409 while another session is alive, 503 while the weights sleep."""
        self._residence.check_weights()
        if (expired := self._slot.expired(self._clock())) is not None:
            await self._end(expired, expired.expiry())
        session = self._slot.claim(name, trainer, timeout_s, self._clock())
        self._alarm = asyncio.get_running_loop().call_later(timeout_s, self._expire, session)
        async with self._taken(session):
            await self._told(session, self._engine.begin())

    async def ticket(self, name: str, ticket: Mapping[str, Any]) -> None:
        """Pass on how the trainer is to be reached."""
        async with self._step(name, "ticket") as session:
            await self._told(session, self._engine.ticket({"session": session.name, "ticket": ticket}))

    async def prepare(self, name: str, manifest: Mapping[str, Any], mode: str, version: int) -> None:
        """Have the worker check what is to come; raises Refusal: 409 for an old version, 400 for what does not fit the model."""
        async with self._step(name, "prepare") as session:
            self._check_version(version)
            session.version, session.full = version, mode == "full"
            dropped = self._residence.dropped
            await self._update(session, "prepare", manifest=manifest, mode=mode, version=version, dropped=dropped)

    async def transfer(self, name: str) -> Mapping[str, Any]:
        """Receive; returns the digest of each bucket and the seconds that it took."""
        async with self._step(name, "transfer") as session:
            began = self._clock()
            await self._update(session, "transfer", timeout_s=max(0.0, session.expires_s - began))
            received = await self._received(session)
            return {"seconds": self._clock() - began, **received.details}

    async def verify(self, name: str, digests: list[str]) -> None:
        """Have the worker compare these digests with those of what it received; raises Refusal (400) where they differ."""
        async with self._step(name, "verify") as session:
            await self._update(session, "verify", digests=digests)

    async def finish(self, name: str, version: str | None, drain_timeout_s: float) -> Timings:
        """Have what was received serve, once nothing is in flight; returns the seconds of the pause and of its parts."""
        session = self._begun(name, "commit")
        return await self._lasting(self._commit(session, version, drain_timeout_s))

    async def revert(self, name: str, drain_timeout_s: float) -> Timings:
        """Have what served before the last update serve again, its version included."""
        session = self._begun(name, "revert")
        return await self._lasting(self._take_back(session, drain_timeout_s))

    async def abort(self, name: str) -> bool:
        """End the session of this name; says whether that was done: not if there is none, or its commit came first."""
        session = self._slot.session
        if session is None or session.name != name:
            return False
        why = Refusal(409, "aborted", f"session {name!r} was aborted; the old weights serve")
        if session.step in ("commit", "revert") and self._committing is not None:
            self._gate.give_up(why)
            await asyncio.wait([self._committing])
            return session.phase != "committed"
        await self._end(session, why)
        return True

    def _begun(self, name: str, step: Step) -> UpdateSession:
        session = self._slot.named(name, self._clock())
        session.begin(step, self._clock())
        return session

    @asynccontextmanager
    async def _step(self, name: str, step: Step) -> AsyncGenerator[UpdateSession]:
        session = self._begun(name, step)
        async with self._taken(session):
            yield session

    @asynccontextmanager
    async def _taken(self, session: UpdateSession) -> AsyncGenerator[None]:
        """Take the step that was begun in the block; if it fails, whichever way, the session is over."""
        try:
            yield
            session.still()
        except BaseException as failure:  # cancelled too: a worker that keeps half an update would take no other
            session.still()
            why = failure if isinstance(failure, Refusal) else _broken(session, failure)
            await self._end(session, why)
            if isinstance(failure, Exception) and failure is not why:
                raise why from failure
            raise
        session.succeed()

    async def _lasting(self, commit: Coroutine[Any, Any, Timings]) -> Timings:
        """Await a commit that goes on when this is cancelled."""
        self._committing = self._background.start(commit)
        return await asyncio.shield(self._committing)

    async def _commit(self, session: UpdateSession, version: str | None, drain_timeout_s: float) -> Timings:
        async with self._taken(session):
            if version not in (None, str(session.version)):
                raise bad_request(f"weight_version={version!r} is not what was prepared, which is {str(session.version)!r}")
            timings = await self._exchanged(session, str(session.version), drain_timeout_s)
        return self._done(session, timings)

    async def _take_back(self, session: UpdateSession, drain_timeout_s: float) -> Timings:
        async with self._taken(session):
            before = self._directory.previous()
            await self._update(session, "revert")
            timings = await self._exchanged(session, _label(before or Record()), drain_timeout_s)
        return self._done(session, timings)

    async def _exchanged(self, session: UpdateSession, label: str, drain_timeout_s: float) -> Timings:
        """Exchange the weights while nothing computes."""
        closed = self._clock()
        async with self._gate.closed(drain_timeout_s):
            drained = self._clock()
            self._residence.check_weights()
            if not session.full:
                self._residence.check_dropped()  # since it was prepared
            async with self._engine.paused(max(_PAUSE_S, closed + drain_timeout_s - drained)):
                paused = self._clock()
                await self._told(session, self._engine.commit(label))
                committed = self._clock()
                self._record = self._directory.record()
                self._residence.dropped &= not session.full
        return {"pause_s": self._clock() - closed, "drain_s": drained - closed, "commit_s": committed - paused}

    def _done(self, session: UpdateSession, timings: Timings) -> Timings:
        logger.info("session=%s version=%d pause_s=%.3f", session.name, self.version, timings["pause_s"])
        self._over(session, Refusal(409, "no_session", f"session {session.name!r} is over: version {self.version} serves"))
        return timings

    async def _update(self, session: UpdateSession, phase: str, **info: Any) -> None:
        await self._told(session, self._engine.update({"phase": phase, "session": session.name, **info}))

    async def _told(self, session: UpdateSession, command: Coroutine[Any, Any, None]) -> None:
        """Await a command to the engine; raises Refusal with what the worker noted of its failure, or else the engine's words."""
        try:
            await command
        except EngineFailed as failure:
            raise _refusal(session, self._directory.status(session.name), str(failure)) from failure

    async def _received(self, session: UpdateSession) -> Status:
        """Wait for the end of the transfer: the worker notes it, since the engine's own loop must not wait for it."""
        while True:
            status = self._directory.status(session.name)
            if status is not None and status.state == "received":
                return status
            if status is not None and status.state in ("refused", "failed"):
                raise _refusal(session, status, "")
            session.still()
            await self._told(session, self._engine.check())
            await asyncio.sleep(_POLL_S)

    def _check_version(self, version: int) -> None:
        serves = self._record
        if version < serves.version or (version == serves.version and serves.updated):
            raise Refusal(409, "old_version", f"version {version} is not newer than version {serves.version}, which serves")

    def _expire(self, session: UpdateSession) -> None:
        if session.ended is None and session.step not in ("commit", "revert"):
            self._background.start(self._end(session, session.expiry()))

    async def _end(self, session: UpdateSession, why: Refusal) -> None:
        """End a session that did not commit, here and in the worker."""
        if self._over(session, why):
            logger.warning("session=%s trainer=%s ended: %s", session.name, session.trainer, why)
            await self._engine.abort(session.name)

    def _over(self, session: UpdateSession, why: Refusal) -> bool:
        if session is self._slot.session and self._alarm is not None:
            self._alarm.cancel()
        return self._slot.end(session, why)


def _refusal(session: UpdateSession, status: Status | None, words: str) -> Refusal:
    if status is not None and status.state == "refused":
        return Refusal(400, "corrupt" if session.step == "verify" else "refused", status.why)
    return Refusal(500, "failed", status.why if status is not None and status.state == "failed" else words)


def _broken(session: UpdateSession, failure: BaseException) -> Refusal:
    if isinstance(failure, asyncio.CancelledError):
        return Refusal(409, "hung_up", f"session {session.name!r} ended: the trainer hung up; the old weights serve")
    words = str(failure) if isinstance(failure, EngineFailed) else f"{type(failure).__name__}: {failure}"
    return Refusal(500, "failed", f"session {session.name!r} ended: {words}")


def _label(record: Record) -> str:
    """Return what vLLM calls these weights: "default" are those of the checkpoint."""
    return str(record.version) if record.updated else "default"
