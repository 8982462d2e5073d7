"""How patient a client of a server is."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reward_loop.config_base import Config, Count

Seconds = Annotated[float, Field(gt=0)]


class HttpSettings(Config):
    """Limits of one connection to a server."""

    unreachable_s: Seconds = 120.0
    """Seconds for which the server may be out of reach, or too busy, before a call fails. How long work takes is not limited."""
    attempt_s: Seconds = 60.0
    """Seconds that one request may take: more than `wait_s`, and more than the server's `poll_s`."""
    wait_s: Annotated[float, Field(ge=0, lt=45)] = 30.0
    """Seconds for which one request waits at the server for a result; what takes longer is asked for again."""
    first_pause_s: Seconds = 0.1
    """Seconds before the second attempt; each pause is twice the one before it."""
    longest_pause_s: Seconds = 5.0
    """Seconds that no pause exceeds."""
    heartbeat_s: Seconds = 10.0
    """Seconds between two signs of life."""
    farewell_s: Seconds = 5.0
    """Seconds that the end of the session may take; the server ends it by itself later."""
    max_sampling: Count = 512
    """Calls of `sample` under way at a time, each of which takes a connection; more wait here."""
    max_reply_mb: Count = 1024
    """MiB of one reply."""
    compress: bool | None = None
    """Whether what is trained on travels in zstd; null: as the server says."""
