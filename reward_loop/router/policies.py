"""Who of several replicas gets a request. Pure: no clock, no I/O, no tasks.

Invariants: a policy chooses among the candidates it is given and nobody else; the same calls in the same order give the same
choices; `consistent_hash` looks at the key and the URLs only, so that equal keys meet the same replica whatever the load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

from reward_loop.errors import RouterError


class Load(Protocol):
    """What policies look at."""

    url: str
    in_flight: int
    latency_s: float


Choice = TypeVar("Choice", bound=Load)


class Policy(Protocol):
    """`by_key`: it wants the request's key, and its choice stands even where another replica is less busy."""

    by_key: bool

    def choose(self, candidates: Sequence[Choice], typical_s: float, key: bytes) -> Choice:
        """Return one of the candidates, of which there is at least one. `typical_s`: the latency of all, 0 if unknown."""
        ...


class LeastLoad:
    """The least (requests in flight + 1) x latency; an unknown latency is the typical one; equals take turns."""

    by_key = False

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, candidates: Sequence[Choice], typical_s: float, key: bytes) -> Choice:
        """Return the candidate that would be first done with what it has."""
        count = len(candidates)
        if count == 1:
            return candidates[0]
        self._turn = turn = (self._turn + 1) % count
        best = candidates[turn]
        least = (best.in_flight + 1) * (best.latency_s or typical_s or 1.0)
        for index in range(turn + 1 - count, turn):
            replica = candidates[index]
            load = (replica.in_flight + 1) * (replica.latency_s or typical_s or 1.0)
            if load < least:
                best, least = replica, load
        return best


class RoundRobin:
    """Each in turn."""

    by_key = False

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, candidates: Sequence[Choice], typical_s: float, key: bytes) -> Choice:
        """Return the candidate after the last one's place."""
        self._turn = (self._turn + 1) % len(candidates)
        return candidates[self._turn]


class PowerOfTwo:
    """The less loaded of two that are drawn."""

    by_key = False

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 (no secret)

    def choose(self, candidates: Sequence[Choice], typical_s: float, key: bytes) -> Choice:
        """Draw two candidates and return the one that would be first done."""
        if len(candidates) == 1:
            return candidates[0]
        one, other = self._random.sample(candidates, 2)
        typical_s = typical_s or 1.0
        load, other_load = ((each.in_flight + 1) * (each.latency_s or typical_s) for each in (one, other))
        return one if load <= other_load else other


class ConsistentHash:
    """The replica with the highest hash of key and URL (rendezvous): who is taken away moves only its own keys."""

    by_key = True

    def choose(self, candidates: Sequence[Choice], typical_s: float, key: bytes) -> Choice:
        """Return the candidate that this key belongs to."""
        return max(candidates, key=lambda replica: blake2b(replica.url.encode(), key=key, digest_size=8).digest())


def policy_named(name: str) -> Policy:
    """Return a new policy; RouterError for a name that is none."""
    policies: dict[str, type[Policy]] = {
        "least_load": LeastLoad,
        "round_robin": RoundRobin,
        "power_of_two": PowerOfTwo,
        "consistent_hash": ConsistentHash,
    }
    if name not in policies:
        raise RouterError(f"router.policy must be one of {sorted(policies)}, not {name!r}")
    return policies[name]()
