"""Which replicas of which models there are, what each does, and what has been counted. Pure: no clock, no I/O, no tasks.

Invariants: a URL belongs to one replica; only `active` replicas get new requests (those that are `starting` where none is active,
those `ejected` for what they answered where nothing else is left); whoever is not active keeps what it has in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from reward_loop.errors import RouterError

State = Literal["starting", "active", "draining", "asleep", "waking", "ejected", "gone"]
Outcome = Literal["ok", "rejected", "busy", "failed", "timeout", "cut", "cancelled"]
"""How an attempt ended: 2xx/3xx, 4xx, 429/503, 5xx or no reply, too late, in the middle of the reply, given up by us."""

LATENCY_BOUNDS_S = tuple(0.0001 * 2**power for power in range(24))
"""Upper bounds of the latency histogram's buckets, in seconds; one more bucket takes what is above."""


def _outcomes() -> dict[Outcome, int]:
    return dict.fromkeys(get_args(Outcome), 0)


@dataclass(slots=True, eq=False)
class Replica:
    """One server of a model."""

    model: str
    url: str
    host: str
    port: int
    state: State = "starting"
    trouble: str = ""
    """What was last wrong with it, for people."""
    in_flight: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=_outcomes)
    latency_s: float = 0.0
    """Moving average over its 2xx; 0 while unknown."""
    latency_sum_s: float = 0.0
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    """Attempts by latency: see LATENCY_BOUNDS_S."""
    ejections: int = 0
    answers: bool = False
    """Whether it was ejected for what it answered, so that it is still better than nobody."""
    on_trial: bool = False
    """Back after an ejection, and not yet proven: it gets one request at a time."""
    failures_in_row: int = 0
    rejects_in_row: int = 0
    busy_in_row: int = 0
    busy_until: float = 0.0
    """Until when it asked to be left alone."""
    marked: bool = False
    """Whether a success changes more than the averages: anything above is not as it was at the beginning."""
    last_ok_at: float = float("-inf")

    def snapshot(self) -> dict[str, Any]:
        """Return it as plain JSON-able values."""
        return {
            "model": self.model,
            "url": self.url,
            "state": self.state,
            "trouble": self.trouble,
            "on_trial": self.on_trial,
            "in_flight": self.in_flight,
            "requests": sum(self.outcomes.values()) + self.in_flight,
            "failures": sum(self.outcomes[outcome] for outcome in ("failed", "timeout", "cut")),
            "outcomes": dict(self.outcomes),
            "latency_s": self.latency_s,
            "ejections": self.ejections,
        }


@dataclass(slots=True, eq=False)
class Pool:
    """The replicas of one model, and those of them that get its requests."""

    model: str
    replicas: list[Replica] = field(default_factory=list[Replica])
    active: list[Replica] = field(default_factory=list[Replica])
    even: bool = True
    """Whether all in `active` may be chosen without a second look."""
    latency_s: float = 0.0
    """Moving average over the 2xx of all replicas; 0 while unknown."""
    waiting: int = 0
    """Requests that wait for a replica."""

    @property
    def waking(self) -> bool:
        """Whether a replica is about to be awake."""
        return any(replica.state == "waking" for replica in self.replicas)

    def refresh(self, now: float = float("-inf")) -> None:
        """Work out again who is eligible, after any change of a state or a flag."""
        self.active = [replica for replica in self.replicas if replica.state == "active"]
        if not self.active:
            self.active = [replica for replica in self.replicas if replica.state == "starting"]
        if not self.active:
            self.active = [replica for replica in self.replicas if replica.state == "ejected" and replica.answers]
        self.even = not any(replica.on_trial or replica.busy_until > now for replica in self.active)

    def candidates(self, now: float, tried: Collection[Replica]) -> Sequence[Replica]:
        """Return who may get a request that `tried` had: without those on trial or busy, if there are others."""
        if self.even and not tried:
            return self.active
        left = [replica for replica in self.active if replica not in tried]
        calm = [one for one in left if one.busy_until <= now and not (one.on_trial and one.in_flight)]
        return calm or left


@dataclass(slots=True)
class Counters:
    """What the router has done beyond its replicas' work."""

    requests: int = 0
    retries: int = 0
    hedges: int = 0
    hedges_won: int = 0
    stale: int = 0
    """Requests sent again because an idle connection had just been closed."""
    queued: int = 0
    queued_sum_s: float = 0.0
    answered: dict[str, int] = field(default_factory=dict[str, int])
    """What the router answered itself, by type of error."""


class Fleet:
    """All models and their replicas; iterating gives the replicas."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.only: Pool | None = None
        """The pool, where there is just one."""
        self.counters = Counters()
        self.on_active: Callable[[], None] = lambda: None
        """Called when a replica becomes active: requests may wait for it."""
        self._by_url: dict[str, Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._by_url.values()))

    def __len__(self) -> int:
        return len(self._by_url)

    def find(self, url: str) -> Replica:
        """Return the replica at a URL; KeyError if there is none."""
        return self._by_url[_normal(url)]

    def add(self, model: str, url: str) -> Replica:
        """Take a replica in, as `starting`. Raises RouterError for a URL that is none, or is taken."""
        url = _normal(url)
        if url in self._by_url:
            raise RouterError(f"{url} is a replica of {self._by_url[url].model!r} already; remove it first")
        if not model:
            raise RouterError(f"the replica {url} needs the name of its model")
        parts = urlsplit(url)
        replica = Replica(model, url, str(parts.hostname), parts.port or 80)
        self._by_url[url] = replica
        pool = self.pools.setdefault(model, Pool(model))
        pool.replicas.append(replica)
        pool.refresh()
        self._count()
        return replica

    def remove(self, url: str) -> Replica:
        """Forget a replica; what it has in flight may end. KeyError if there is none."""
        replica = self.find(url)
        pool = self.pools[replica.model]
        pool.replicas.remove(replica)
        del self._by_url[replica.url]
        if not pool.replicas:
            del self.pools[replica.model]
        self._count()
        self._becomes(replica, "gone")
        pool.refresh()
        return replica

    def drain(self, url: str) -> Replica:
        """Give a replica nothing more; KeyError if there is none."""
        return self._becomes(self.find(url), "draining")

    def sleep(self, url: str) -> Replica:
        """Give a replica nothing more, for it is about to sleep; KeyError if there is none."""
        return self._becomes(self.find(url), "asleep")

    def waking(self, url: str) -> Replica:
        """Let requests wait for a replica that is about to be awake; KeyError if there is none."""
        return self._becomes(self.find(url), "waking")

    def wake(self, url: str) -> Replica:
        """Use a replica (again), whatever it was; KeyError if there is none."""
        replica = self.find(url)
        replica.failures_in_row = replica.rejects_in_row = 0
        return self._becomes(replica, "active")

    def probed(self, url: str) -> Replica:
        """Note that a replica answered a health check: one that starts becomes active, an ejected one gets a trial."""
        replica = self.find(url)
        if replica.state == "ejected":
            replica.on_trial = replica.marked = True
        return self._becomes(replica, "active") if replica.state in ("starting", "ejected") else replica

    def eject(self, replica: Replica, trouble: str, *, answers: bool = False) -> None:
        """Give a failing replica nothing more until `probed`. `answers`: it still does, so it is better than nobody."""
        replica.trouble = trouble
        if replica.state in ("starting", "active", "ejected"):
            replica.ejections += replica.state != "ejected"
            replica.answers = answers
            self._becomes(replica, "ejected")

    def tick(self, now: float, elapsed_s: float) -> None:
        """Forget slowly: what was known of a latency drifts to the pool's, and who asked to be left alone may be back."""
        drift = min(1.0, elapsed_s / 10.0)
        for pool in self.pools.values():
            for replica in pool.replicas:
                if replica.latency_s and now - replica.last_ok_at > 1.0:
                    replica.latency_s += (pool.latency_s - replica.latency_s) * drift
            if not pool.even:
                pool.refresh(now)

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain JSON-able values."""
        return {
            "replicas": [replica.snapshot() for replica in self],
            "waiting": {model: pool.waiting for model, pool in self.pools.items()},
        }

    def _count(self) -> None:
        self.only = next(iter(self.pools.values())) if len(self.pools) == 1 else None

    def _becomes(self, replica: Replica, state: State) -> Replica:
        replica.state = state
        if state != "active":
            replica.on_trial = False
        if pool := self.pools.get(replica.model):
            pool.refresh()
        if state == "active":
            self.on_active()
        return replica


def _normal(url: str) -> str:
    """Return http://host:port in one spelling; RouterError for anything else."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.username:
        raise RouterError(f"the URL of a replica must be http://host:port, not {url!r:.200}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"http://{host}:{port}"
