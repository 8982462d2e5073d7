"""What may be asked twice, and what a reply's status means. Pure."""

from __future__ import annotations

import re

from reward_loop.router.fleet import Outcome

_CHANGES = re.compile(
    rb"/(?:v1/|inference/v1/|api/)*"
    rb"(?:admin|sleep|wake|pause|resume|update|set_|load|unload|init|destroy|start|stop|finish|reload|reset|abort|collective_rpc|scale|sync|shutdown)"
)
"""Paths of servers that change what they do; every other POST to a reward server is a question."""


def may_be_resent(method: bytes, target: bytes) -> bool:
    """Whether asking twice does no harm."""
    return method in (b"GET", b"HEAD", b"OPTIONS") or (method == b"POST" and not _CHANGES.match(target))


def outcome_of(status: int) -> Outcome:
    """Return what a whole reply with this status is."""
    if status < 400:
        return "ok"
    if status in (429, 503):
        return "busy"
    return "rejected" if status < 500 else "failed"


def retry_after_s(value: bytes | None) -> float | None:
    """Return the seconds that a Retry-After asks for; None where there is none, or it holds a date or nonsense."""
    return float(value) if value is not None and value.isdigit() and len(value) < 10 else None
