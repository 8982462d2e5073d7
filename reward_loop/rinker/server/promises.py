"""All results that are to come or are kept.

Invariants: the same key gives the same promise for as long as that is kept; results leave in the order in which they came, those
that were fetched first; what was promised here once is told apart from what never was. No clock, no tasks: the time is given.
"""

from __future__ import annotations

import secrets

from reward_loop.rinker.server.promise import Key, Promise, Reply
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.settings import ServerSettings


class Promises:
    """Promises by id and by key."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        # Of this server's life: an id of an earlier one must not name somebody else's result.
        self._prefix = f"{secrets.token_hex(8)}-"
        self._count = 0
        self._by_id: dict[str, Promise] = {}
        self._by_key: dict[Key, Promise] = {}
        self._settled: dict[str, Promise] = {}
        self._fetched: dict[str, Promise] = {}
        self._bytes = 0

    @property
    def pending(self) -> int:
        """How many are still to come."""
        return len(self._by_id) - len(self._settled) - len(self._fetched)

    def find(self, key: Key) -> Promise | None:
        """Return the promise of an earlier request with this key."""
        return self._by_key.get(key)

    def open(self, key: Key, session_id: str) -> Promise:
        """Return a new promise. Raises Refusal where too many are to come already."""
        if self.pending >= self._settings.max_pending:
            raise Refusal(429, f"{self.pending} requests wait or run already; ask again later", retry_after_s=1)
        promise = Promise(f"{self._prefix}{self._count}", key, session_id)
        self._count += 1
        self._by_id[promise.id] = self._by_key[key] = promise
        return promise

    def get(self, promise_id: str) -> Promise:
        """Return a promise. Raises Refusal: 410 where its result is not kept any more, 404 where it never was."""
        promise = self._by_id.get(promise_id)
        if promise is not None:
            return promise
        number = promise_id.removeprefix(self._prefix)
        # Only what `open` wrote: int() takes more, and refuses texts that are too long by an error of its own.
        if number != promise_id and number.isascii() and number.isdigit() and len(number) < 19 and int(number) < self._count:
            raise Refusal(410, f"the result of {promise_id} is not kept any more; make the request again")
        raise Refusal(404, f"no request {promise_id!r:.100} was made to this server, which may have been started anew since")

    def of_session(self, session_id: str) -> list[Promise]:
        """Return those of a session that are still to come."""
        return [promise for promise in self._by_id.values() if promise.session_id == session_id and promise.reply is None]

    def unsettled(self) -> list[Promise]:
        """Return all that are still to come."""
        return [promise for promise in self._by_id.values() if promise.reply is None]

    def settle(self, promise: Promise, reply: Reply, now: float) -> None:
        """Keep a result, and wake those who wait for it."""
        promise.reply, promise.settled_at, promise.task = reply, now, None
        self._settled[promise.id] = promise
        self._bytes += len(reply.body)
        promise.changed.set()

    def fetched(self, promise: Promise, now: float) -> None:
        """Note that a result was sent."""
        if self._settled.pop(promise.id, None) is not None:
            promise.fetched_at = now
            self._fetched[promise.id] = promise

    def sweep(self, now: float) -> None:
        """Drop what need not be kept any more."""
        settings = self._settings
        for promise in tuple(self._fetched.values()):
            if not self._too_much() and (promise.fetched_at or 0.0) + settings.fetched_ttl_s > now:
                break
            self._drop(promise)
        for promise in tuple(self._settled.values()):
            if not self._too_much() and promise.settled_at + settings.result_ttl_s > now:
                break
            self._drop(promise)

    def _too_much(self) -> bool:
        kept = len(self._settled) + len(self._fetched)
        return kept > self._settings.max_results or self._bytes > self._settings.max_results_mb << 20

    def _drop(self, promise: Promise) -> None:
        del self._by_id[promise.id]
        self._by_key.pop(promise.key, None)
        self._settled.pop(promise.id, None)
        self._fetched.pop(promise.id, None)
        self._bytes -= len(promise.reply.body) if promise.reply is not None else 0
