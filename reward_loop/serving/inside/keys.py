"""Who may ask for scores: vLLM guards its paths under /v1 alone with its keys (--api-key)."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from reward_loop.serving.inside.reply import Refusal


def check_key(keys: Iterable[str | None], headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise Refusal (401) if there are keys and the request's headers show none of them."""
    wanted = [f"Bearer {key}".encode() for key in keys if key]
    shown = dict(headers).get(b"authorization", b"")
    if wanted and not any(hmac.compare_digest(shown, each) for each in wanted):
        raise Refusal(401, "unauthorized", "show one of the server's keys (--api-key) as Authorization: Bearer …")
