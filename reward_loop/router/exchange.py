"""One request from its arrival to the end of its answer, over as many attempts as it takes.

Invariants: the client gets one answer; nothing is sent again once a byte of an answer went out; every attempt ends in exactly one
of `replied`, `streamed`, `lost` and `drop`; only whole replies are called whole.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from reward_loop.router.attempt import outcome_of, retry_after_s
from reward_loop.router.fleet import Outcome, Pool, Replica
from reward_loop.router.upstream import Framing, KnownReply, Loss, Upstream
from reward_loop.router.wire import ErrorType, first

if TYPE_CHECKING:
    from reward_loop.router.dispatch import Dispatcher

Reply = tuple[bytes, list[bytes], list[bytes]]
"""First line, flat headers, pieces of the body."""


class Client(Protocol):
    """Who asked."""

    reads: bool
    """Whether it takes what it is sent; False: wait with more."""

    def deliver(self, first_line: bytes, headers: list[bytes], body: list[bytes]) -> None:
        """Send a whole answer."""

    def pass_on(self, known: KnownReply, message: bytes) -> None:
        """Send a whole answer as it came, if nothing has to be added to it."""

    def refuse(self, kind: ErrorType, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Answer with an error of the router's own."""

    def interim(self, first_line: bytes, headers: list[bytes]) -> None:
        """Send a 1xx."""

    def begin(self, first_line: bytes, headers: list[bytes], body: list[bytes], framing: Framing) -> None:
        """Send the beginning of an answer."""

    def piece(self, body: bytes) -> None:
        """Send more of it."""

    def end(self) -> None:
        """Send the end of it."""

    def hang_up(self) -> None:
        """End the connection so that the client sees that its answer is not whole."""


_LOST_AS: dict[Loss, Outcome] = {"late": "timeout", "cut": "cut"}


class Exchange:
    """A request of `client`, whose head and body `request` holds as it goes to a replica."""

    begun = False
    """Whether a byte of an answer went out."""
    _kept: Reply | None = None
    """The best reply so far, of those that are worth asking another replica."""
    _suspect: Replica | None = None
    """Who said 400 or 404 though that may be its own fault."""
    _troubles: tuple[str, ...] = ()
    tried: tuple[Replica, ...] = ()
    """Who had this request and gave no good answer."""

    def __init__(
        self,
        dispatch: Dispatcher,
        client: Client,
        pool: Pool,
        request: list[bytes],
        resendable: bool,
        head_only: bool,
        key: bytes,
    ) -> None:
        self._dispatch = dispatch
        self.client = client
        self.pool = pool
        self.request = request
        self.resendable = resendable
        self.head_only = head_only
        self.key = key
        self.arrived = monotonic()
        self.conns: list[Upstream] = []

    # ---- what the client's connection does with it

    def start(self) -> None:
        """Go to a replica."""
        dispatch, pool = self._dispatch, self.pool
        if dispatch.simple and pool.even and pool.active:
            dispatch.send(self, dispatch.policy.choose(pool.active, pool.latency_s, b""), self.arrived)
        else:
            dispatch.place(self, self.arrived)

    def cancel(self) -> None:
        """End every attempt: the client is gone."""
        self._dispatch.unqueue(self)
        self._drop_all("cancelled")

    def pause(self) -> None:
        """Read no more of the answer for now."""
        self._flow(reads=False)

    def resume(self) -> None:
        """Read on."""
        self._flow(reads=True)

    def check(self, now: float) -> None:
        """Look after the deadlines; called every now and then."""
        settings = self._dispatch.settings
        if self.begun:
            [conn] = self.conns
            stalled_s = now - conn.bytes_at
            if stalled_s > (settings.attempt_timeout_s if self.client.reads else settings.total_timeout_s):
                self.lost(conn, "late", f"nothing more of its reply for {stalled_s:.1f} s")
                conn.abort()
            return
        if now - self.arrived > settings.total_timeout_s:
            self._time_is_up(now)
            return
        for conn in tuple(self.conns):
            if self._hangs(conn, now) and self._dispatch.another(self, now):
                self.lost(conn, "late", f"no reply within {now - conn.sent_at:.1f} s")
                conn.abort()
        after_s = self._dispatch.hedging.after_s
        if after_s is not None and len(self.conns) == 1 and now - self.conns[0].sent_at > after_s:
            self._dispatch.hedge(self, now)

    # ---- what the connections to replicas tell it

    def replied_as_before(self, conn: Upstream, known: KnownReply, message: bytes) -> bool:
        """Take a whole reply with status 200 and hand it out, if there is nothing else to be considered."""
        dispatch = self._dispatch
        if len(self.conns) > 1 or self._suspect is not None or dispatch.hedges:
            return False
        now = monotonic()
        self.conns.clear()
        dispatch.ejection.succeeded(self.pool, conn.replica, now, now - conn.sent_at)
        conn.served += 1
        dispatch.release(conn, now)
        self.client.pass_on(known, message)
        return True

    def replied(self, conn: Upstream) -> None:
        """Take a whole reply, and hand it out unless another replica had better be asked."""
        now = monotonic()
        dispatch = self._dispatch
        status, reply = conn.status, (conn.first_line(), conn.headers, conn.body)
        self.conns.remove(conn)
        if status < 400:
            dispatch.ejection.succeeded(self.pool, conn.replica, now, now - conn.sent_at)
            if self.conns or self._suspect is not None or dispatch.hedges:
                self._preferred(conn, now)
        elif self._asks_another(conn.replica, reply, status, now):
            conn.forget()
            dispatch.release(conn, now)
            if not self.conns:
                dispatch.place(self, now)
            return
        elif self.conns:
            self._drop_all("cancelled")
        conn.forget()
        dispatch.release(conn, now)
        if status >= 400 and self._suspect is not None and self._kept is not None:
            reply = self._kept
        self.client.deliver(*reply)

    def streams(self, conn: Upstream) -> None:
        """Begin to pass a reply on before it is whole."""
        self.begun = True
        for other in tuple(self.conns):
            if other is not conn:
                self._drop(other, "cancelled")
                other.abort()
        self.client.begin(conn.first_line(), conn.headers, conn.body, conn.framing)
        if not self.client.reads:
            self.pause()

    def streamed(self, conn: Upstream) -> None:
        """End an answer that was passed on."""
        now = monotonic()
        outcome = outcome_of(conn.status)
        if outcome == "ok":
            self._dispatch.ejection.succeeded(self.pool, conn.replica, now, now - conn.sent_at)
        else:
            conn.replica.outcomes[outcome] += 1
        self.conns.remove(conn)
        conn.forget()
        self._dispatch.release(conn, now)
        self.client.end()

    def lost(self, conn: Upstream, loss: Loss, why: str) -> None:
        """Go on without an attempt that ended with no whole reply."""
        now = monotonic()
        replica = conn.replica
        self._drop(conn, _LOST_AS.get(loss, "failed"))
        if self.begun:
            self._dispatch.ejection.failed(replica, why)
            self.client.hang_up()
            return
        if loss == "stale" and self.resendable:
            self._dispatch.counters.stale += 1
            self._dispatch.send(self, replica, now, fresh=True)
            return
        self._dispatch.ejection.failed(replica, why)
        self._troubles += (f"{replica.url}: {why}",)
        self.tried += (replica,)
        if self.conns:
            return
        if (self.resendable or loss == "refused") and self._may_go_on(now, paid=loss == "late"):
            self._dispatch.place(self, now)
        else:
            self.give_up()

    # ---- how it ends without a good reply

    def give_up(self) -> None:
        """Answer with the best there is: what a server said, or what is wrong with each."""
        if self._kept is not None:
            self.client.deliver(*self._kept)
        elif self._troubles:
            message = f"no server of {self.pool.model!r} replied: {'; '.join(self._troubles)}"
            self.client.refuse("upstream_failed", 502, message)
        else:
            self._nobody()

    def _nobody(self) -> None:
        replicas = self.pool.replicas
        if replicas and all(replica.state == "asleep" for replica in replicas):
            self.client.refuse(
                "asleep",
                503,
                f"all servers of {self.pool.model!r} sleep; hold a lease of the RewardModelManager while you ask them",
            )
            return
        states = "; ".join(f"{one.url} is {one.state}{f' ({one.trouble})' if one.trouble else ''}" for one in replicas)
        self.client.refuse("no_replica", 503, f"no server of {self.pool.model!r} can be asked: {states or 'there is none'}")

    def _time_is_up(self, now: float) -> None:
        where = [conn.replica.url for conn in self.conns]
        what = f"asked last: {', '.join(where)}" if where else "it waited for a free server"
        self._dispatch.unqueue(self)
        self._drop_all("timeout")
        told = "".join(f"; {trouble}" for trouble in self._troubles)
        message = f"no reply within {now - self.arrived:.1f} s (router.total_timeout_s); {what}{told}"
        self.client.refuse("timeout", 504, message)

    # ---- parts

    def _asks_another(self, replica: Replica, reply: Reply, status: int, now: float) -> bool:
        """Note a reply of 400 and above, and say whether the request goes to another replica because of it."""
        ejection, outcome = self._dispatch.ejection, outcome_of(status)
        self.tried += (replica,)
        if outcome == "rejected":
            suspect = status in (400, 404) and not self._suspect and ejection.is_suspect(self.pool, replica, now)
            ejection.rejected(replica)
            if not suspect or not self._goes_on(now):
                return False
            self._suspect = replica
        elif outcome == "busy":
            ejection.busy(self.pool, replica, now, retry_after_s(first(reply[1], b"retry-after")))
        else:
            replica.outcomes["failed"] += 1
            ejection.failed(replica, f"it answered {status}", answers=True)
        if self._suspect is None or self._suspect is replica:
            self._kept = reply
        return outcome == "rejected" or (self._suspect is None and self._goes_on(now))

    def _goes_on(self, now: float) -> bool:
        return bool(self.conns) or (self.resendable and self._may_go_on(now, paid=True))

    def _may_go_on(self, now: float, *, paid: bool) -> bool:
        """Whether another replica may be asked, and has been paid for."""
        dispatch = self._dispatch
        if len(self.tried) > dispatch.settings.retries or not dispatch.another(self, now):
            return False
        if paid and not dispatch.budget.spend(dispatch.counters.requests):
            return False
        dispatch.counters.retries += 1
        return True

    def _hangs(self, conn: Upstream, now: float) -> bool:
        """Whether an attempt is over its time, or its replica was ejected and has not made a sound since."""
        settings, replica = self._dispatch.settings, conn.replica
        if not self.resendable:
            return False
        if now - conn.sent_at > settings.attempt_timeout_s:
            return True
        quiet_s = now - max(conn.sent_at, replica.last_ok_at)
        return replica.state == "ejected" and quiet_s > settings.health_timeout_s

    def _preferred(self, conn: Upstream, now: float) -> None:
        """Note what a success says about others that have, or had, the same request."""
        self._dispatch.hedging.note(now - conn.sent_at)
        if self.conns:
            self._dispatch.counters.hedges_won += conn.sent_at > self.conns[0].sent_at
            self._drop_all("cancelled")
        if self._suspect is not None:
            trouble = f"it answered 4xx where {conn.replica.url} answered {conn.status}"
            self._dispatch.ejection.failed(self._suspect, trouble, answers=True)

    def _drop(self, conn: Upstream, outcome: Outcome) -> None:
        self.conns.remove(conn)
        conn.replica.outcomes[outcome] += 1
        self._dispatch.drop(conn)

    def _drop_all(self, outcome: Outcome) -> None:
        for conn in tuple(self.conns):
            self._drop(conn, outcome)
            conn.abort()

    def _flow(self, *, reads: bool) -> None:
        for conn in self.conns:
            if conn.streaming:
                conn.flow(reads=reads)
