"""Brings requests to replicas: chooses, queues where all are full, keeps connections that lie idle, makes new ones.

Invariant: a replica's `in_flight` counts the attempts between `send` and one of `release` and `drop`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from time import monotonic

from reward_loop.router.affinity import key_by
from reward_loop.router.budget import RetryBudget
from reward_loop.router.ejection import Ejection
from reward_loop.router.exchange import Exchange
from reward_loop.router.fleet import Fleet, Pool, Replica
from reward_loop.router.hedging import Hedging
from reward_loop.router.memo import Memo
from reward_loop.router.policies import policy_named
from reward_loop.router.settings import RouterSettings
from reward_loop.router.upstream import KnownReply, Upstream
from reward_loop.router.waiting import WaitingLines


class Dispatcher:
    """What all exchanges of a router share. `tasks` holds the connecting that goes on."""

    def __init__(self, settings: RouterSettings, fleet: Fleet, tasks: asyncio.TaskGroup) -> None:
        self.settings = settings
        self.fleet = fleet
        self.counters = fleet.counters
        self.plain_headers: set[bytes] = set()
        """Names of headers of replies that need no second look."""
        self.known_replies: Memo[bytes, KnownReply] = Memo()
        self.budget = RetryBudget(settings.retry_budget)
        self.ejection = Ejection(fleet, settings.eject_after)
        self.hedging = Hedging(settings.hedge_quantile)
        self.hedges = settings.hedge_quantile is not None
        self.policy = policy_named(settings.policy)
        self.key = key_by(settings)
        self.lines: WaitingLines[Pool | Replica, Exchange] = WaitingLines(settings.max_queue)
        self._limit = settings.max_in_flight
        self.simple = self._limit is None and not self.policy.by_key
        """Whether any replica may be chosen that is even (see Pool)."""
        self._tasks = tasks
        fleet.on_active = self._serve_waiting
        self._idle: defaultdict[Replica, list[Upstream]] = defaultdict(list)

    # ---- exchanges

    def place(self, exchange: Exchange, now: float) -> None:
        """Send a request to a replica that has not had it, or let it wait for one, or say that there is none."""
        candidates = self._candidates(exchange, now)
        if not candidates:
            if exchange.pool.waking:
                self._queue(exchange.pool, exchange)
            else:
                exchange.give_up()
        elif self._limit is None:
            self.send(exchange, self.policy.choose(candidates, exchange.pool.latency_s, exchange.key), now)
        else:
            self._place_within(self._limit, exchange, candidates, now)

    def another(self, exchange: Exchange, now: float) -> bool:
        """Whether there is a replica that has not had this request."""
        return bool(self._candidates(exchange, now))

    def hedge(self, exchange: Exchange, now: float) -> None:
        """Send a second copy of a slow request, if someone is there for it and the budget allows."""
        candidates = self._candidates(exchange, now)
        if self._limit is not None:
            candidates = [one for one in candidates if one.in_flight < self._limit]
        if exchange.resendable and candidates and self.budget.spend(self.counters.requests):
            self.counters.hedges += 1
            self.send(exchange, self.policy.choose(candidates, exchange.pool.latency_s, exchange.key), now)

    def send(self, exchange: Exchange, replica: Replica, now: float, *, fresh: bool = False) -> None:
        """Give a request to a replica, over an idle connection unless it must be a `fresh` one."""
        replica.in_flight += 1
        idle = self._idle[replica]
        # What may not be asked twice never goes over a connection that its server may be closing just now.
        if idle and exchange.resendable and not fresh:
            conn = idle.pop()
        else:
            conn = Upstream(self, replica)
            self._tasks.create_task(self._connect(conn))
        conn.exchange = exchange
        conn.sent_at = now
        exchange.conns.append(conn)
        conn.send(exchange.request)

    def unqueue(self, exchange: Exchange) -> None:
        """Let an exchange wait no more."""
        if self.lines.leave(exchange):
            exchange.pool.waiting -= 1
            self.counters.queued_sum_s += monotonic() - exchange.arrived

    # ---- connections

    def release(self, conn: Upstream, now: float) -> None:
        """Take back a connection whose exchange is over, and let the next request have its place."""
        conn.exchange = None
        replica = conn.replica
        replica.in_flight -= 1
        if not conn.keep or replica.state == "gone":
            conn.abort()
        else:
            self._idle[replica].append(conn)
        if self._limit is not None:
            self._admit(replica, now)

    def drop(self, conn: Upstream) -> None:
        """Take back a connection in the middle of an exchange; the caller ends it."""
        conn.exchange = None
        conn.replica.in_flight -= 1
        if self._limit is not None:
            self._admit(conn.replica, monotonic())

    def rest(self, conn: Upstream) -> None:
        """Keep a connection that nobody wants any more by the time it is made."""
        self._idle[conn.replica].append(conn)

    def forget(self, conn: Upstream) -> None:
        """Keep a connection no longer: it has ended."""
        idle = self._idle.get(conn.replica)
        if idle and conn in idle:
            idle.remove(conn)

    def close(self) -> None:
        """End all idle connections."""
        for idle in self._idle.values():
            for conn in tuple(idle):
                conn.abort()

    def tick(self, now: float, elapsed_s: float) -> None:
        """Look after what no event brings: replicas that came or went while requests wait, connections to those gone."""
        self.fleet.tick(now, elapsed_s)
        self.hedging.tick()
        self._serve_waiting()
        for replica in [replica for replica in self._idle if replica.state in ("gone", "asleep")]:
            for conn in self._idle.pop(replica):
                conn.abort()

    # ---- parts

    def _candidates(self, exchange: Exchange, now: float) -> Sequence[Replica]:
        pool = exchange.pool
        tried: Sequence[Replica] = exchange.tried
        if exchange.conns:
            tried = [*tried, *(conn.replica for conn in exchange.conns)]
        if not self.policy.by_key:
            return pool.candidates(now, tried)
        return [replica for replica in pool.active if replica not in tried] if tried else pool.active

    def _place_within(self, limit: int, exchange: Exchange, candidates: Sequence[Replica], now: float) -> None:
        pool = exchange.pool
        if not self.policy.by_key:
            roomy = [replica for replica in candidates if replica.in_flight < limit]
            if roomy:
                self.send(exchange, self.policy.choose(roomy, pool.latency_s, exchange.key), now)
            else:
                self._queue(pool, exchange)
            return
        home = self.policy.choose(candidates, pool.latency_s, exchange.key)
        if home.in_flight < limit:
            self.send(exchange, home, now)
        else:
            self._queue(home, exchange)

    def _queue(self, key: Pool | Replica, exchange: Exchange) -> None:
        if self.lines.join(key, exchange):
            self.counters.queued += 1
            exchange.pool.waiting += 1
            return
        message = f"{len(self.lines)} requests wait already (router.max_queue); ask again later, or add servers"
        exchange.client.refuse("queue_full", 429, message, {"Retry-After": "1"})

    def _admit(self, replica: Replica, now: float) -> None:
        """Let who waited longest have the place that has become free."""
        key = replica if self.policy.by_key else self.fleet.pools.get(replica.model)
        exchange = self.lines.first(key) if key is not None else None
        if key is not None and exchange is not None and self._has_room(key, exchange.pool):
            self.unqueue(exchange)
            self.place(exchange, now)

    def _serve_waiting(self) -> None:
        """Place again whoever waits: someone may have room, or nobody may be left to wait for."""
        now = monotonic()
        for key in self.lines:
            self._admit_all(key, now)

    def _admit_all(self, key: Pool | Replica, now: float) -> None:
        """Place those that wait in a line for as long as there is room, and all where nobody is left to wait for."""
        for _ in range(self.lines.length(key)):
            exchange = self.lines.first(key)
            if exchange is None or not self._has_room(key, exchange.pool):
                return
            self.unqueue(exchange)
            self.place(exchange, now)

    def _has_room(self, key: Pool | Replica, pool: Pool) -> bool:
        """Whether to place a request that waits: there is room, or there is nobody left to wait for."""
        if not pool.active:
            return not pool.waking
        limit = self._limit
        if limit is None:
            return True
        if isinstance(key, Replica):
            return key.in_flight < limit or key not in pool.active
        return any(replica.in_flight < limit for replica in pool.active)

    async def _connect(self, conn: Upstream) -> None:
        replica, timeout_s = conn.replica, self.settings.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: conn, replica.host, replica.port)
        except TimeoutError:
            self._refused(conn, f"no connection within {timeout_s} s")
        except OSError as error:
            self._refused(conn, f"no connection: {error}")

    def _refused(self, conn: Upstream, why: str) -> None:
        if conn.exchange is not None:
            conn.exchange.lost(conn, "refused", why)
