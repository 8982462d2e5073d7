"""What all routes share: the backend, the sessions, the results to come, and the tasks that work on them.

Invariants: every request that was taken gets a result, be it an error; of two with the same key one runs; what belongs to a
session ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from reward_loop.rinker.backend import Backend
from reward_loop.rinker.server.failures import failure_of
from reward_loop.rinker.server.promise import Key, Promise, Reply
from reward_loop.rinker.server.promises import Promises
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.sessions import Sessions
from reward_loop.rinker.server.settings import ServerSettings

logger = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, Reply]]

_SWEEP_S = 1.0


class Hub:
    """Works while `run` does."""

    def __init__(self, backend: Backend, settings: ServerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend = backend
        self.settings = settings
        self.now = clock
        self.promises = Promises(settings)
        self.sessions = Sessions(settings)
        self.stopping = False
        self._stop = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._left: set[asyncio.Task[None]] = set()

    async def run(self, started: asyncio.Event) -> None:
        """Work until `stop` is called; then what still runs is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            started.set()
            await self._sweep()
            for promise in self.promises.unsettled():
                self.cancel(promise)
            for task in self._left:
                task.cancel()

    def stop(self) -> None:
        """Take nothing more, and let those go who wait."""
        self.stopping = True
        self._stop.set()
        for promise in self.promises.unsettled():
            promise.changed.set()

    def submit(self, key: Key, session_id: str, work: Work) -> Promise:
        """Return the promise of a request's result; `work` begins, unless the request was made before. Raises Refusal."""
        self._refuse_while_stopping()
        promise = self.promises.find(key)
        if promise is None:
            promise = self.promises.open(key, session_id)
            promise.task = self._background(self._settle(promise, work))
            promise.task.add_done_callback(lambda _: self._ended(promise))
        return promise

    async def settled(self, promise: Promise, timeout_s: float) -> Reply | None:
        """Wait for a result; None where it has not come in time."""
        if promise.reply is None and timeout_s > 0:
            try:
                async with asyncio.timeout(timeout_s):
                    await promise.changed.wait()
            except TimeoutError:
                pass
        return promise.reply

    def end_session(self, session_id: str, why: str) -> None:
        """End a session: what it waits for fails, its models are unloaded. Raises Refusal."""
        self._refuse_while_stopping()
        promises = self.promises.of_session(session_id)
        models, samplers = self.sessions.end(session_id, why)
        for promise in promises:
            self.cancel(promise)
        for model in models:
            self._background(_quietly(self.backend.unload_model(model.backend_id), model.id))
        for sampler in samplers:
            self._background(_quietly(self.backend.close_sampling_session(sampler.id), sampler.id))

    def cancel(self, promise: Promise) -> None:
        """Give up a request, if it is not done."""
        if promise.task is not None:
            promise.task.cancel()

    def leave(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        """Do what a request that was given up leaves to be done; nobody waits for it, nor does the end of the server."""
        if not self.stopping:
            task = self._background(_quietly(work(), what))
            self._left.add(task)
            task.add_done_callback(self._left.discard)

    def tidy(self) -> None:
        """Drop results that need not be kept any more, and end sessions that give no sign of life."""
        self.promises.sweep(self.now())
        for session in self.sessions.overdue(self.now()):
            self.end_session(session.id, "it gave no sign of life for too long")

    def _refuse_while_stopping(self) -> None:
        # Not only when a request begins: its body may go on coming until the tasks have ended.
        if self.stopping:
            raise Refusal(503, "the server is being stopped", retry_after_s=1)

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._tasks is None:
            work.close()
            raise RuntimeError("the hub does not run")
        return self._tasks.create_task(work)

    async def _settle(self, promise: Promise, work: Work) -> None:
        try:
            reply = await work()
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the request's result, and must not end the others
            reply = failure_of(error, promise.id)
        self.promises.settle(promise, reply, self.now())

    def _ended(self, promise: Promise) -> None:
        # Also where a task was cancelled before it began.
        if promise.reply is None:
            self.promises.settle(promise, Reply.failure("the request was cancelled", "user"), self.now())

    async def _sweep(self) -> None:
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(_SWEEP_S):
                    await self._stop.wait()
            except TimeoutError:
                pass
            if not self.stopping:
                self.tidy()


async def _quietly(work: Awaitable[None], what: str) -> None:
    try:
        await work
    except Exception:  # nobody waits for it, and it must not end the others
        logger.exception("%s could not be given up", what)
