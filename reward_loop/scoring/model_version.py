"""Which version of its weights a server says that it computed a reply with."""

from __future__ import annotations

from reward_loop.scoring.transport import Reply

_HEADER = "X-Reward-Model-Version"


def version_of(reply: Reply) -> int | None:
    """Return the version that computed a reply; None for a server that knows of none."""
    value = reply.headers.get(_HEADER, "")
    return int(value) if value.isascii() and value.isdigit() else None
