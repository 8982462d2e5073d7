"""The settings of a router as plain values, so that its process needs neither a configuration nor pydantic.

Invariant: the names and units are those of `reward_model.router`; tokens are values here, not names of variables.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Literal

from reward_loop.errors import RouterError


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """How a router behaves; what a field means stands in RouterConfig."""

    policy: Literal["least_load", "round_robin", "power_of_two", "consistent_hash"] = "least_load"
    affinity: Literal["body", "prefix", "session"] = "prefix"
    affinity_bytes: int = 1024
    host: str = "127.0.0.1"
    port: int = 0
    total_timeout_s: float = 600.0
    attempt_timeout_s: float = 120.0
    connect_timeout_s: float = 2.0
    retries: int = 3
    retry_budget: float = 0.2
    hedge_quantile: float | None = None
    health_interval_s: float = 0.5
    health_timeout_s: float = 2.0
    eject_after: int = 3
    max_in_flight: int | None = None
    max_queue: int = 4096
    max_body_mb: int = 64
    token: str | None = None
    """Bearer token that clients must show; None: none."""
    admin_token: str | None = None
    """Bearer token of /admin; None: /admin is closed."""
    server_token: str | None = None
    """Bearer token that the servers get; None: what the client sent is passed on."""
    default_model: str | None = None
    """The model of requests that name none, where several are served."""
    head_timeout_s: float = 20.0
    """Seconds that a client may take to send the head of a request, and between two pieces of its body."""
    idle_timeout_s: float = 900.0
    """Seconds that a connection of a client may lie idle."""
    drain_timeout_s: float = 10.0
    """Seconds that requests in flight get to end when the router is told to stop."""

    def to_json(self) -> str:
        """Return the settings as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> RouterSettings:
        """Read what `to_json` wrote; RouterError for anything else."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise RouterError(f"the router's settings must be one line of JSON, not {text[:200]!r}: {error}") from None
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or not values.keys() <= known:
            raise RouterError(f"the router's settings must be an object of {sorted(known)}, not {text[:200]!r}")
        return cls(**values)
