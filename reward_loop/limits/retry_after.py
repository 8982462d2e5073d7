"""What a 429 says about when to come back, whichever client it came through.

Invariant: what can't be read is None ("not said"), never an error and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from reward_loop.errors import TooManyRequests


@dataclass(frozen=True, slots=True)
class Throttled:
    """A service answered 429 and asked to be left alone for so long (None: it did not say)."""

    retry_after_s: float | None


def retry_after_s(headers: object, now: datetime | None = None) -> float | None:
    """Return the seconds that a response's Retry-After asks to wait: a number, or an HTTP date less `now`."""
    value = _header(headers)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = _until(value, now or datetime.now(UTC))
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def throttled(error: BaseException) -> Throttled | None:
    """Return what an error says if it is a 429: ours, or one as aiohttp, httpx, requests, openai and urllib raise them."""
    if isinstance(error, TooManyRequests):
        return Throttled(error.retry_after_s)
    sources: tuple[Any, ...] = (error, getattr(error, "response", None))
    if not any(getattr(source, name, None) == 429 for source in sources for name in ("status", "status_code", "code")):
        return None
    waits = (retry_after_s(getattr(source, "headers", None)) for source in sources)
    return Throttled(next((wait for wait in waits if wait is not None), None))


def _header(headers: object) -> str | None:
    if not isinstance(headers, Mapping) and not hasattr(headers, "items"):
        return None
    items: Any = headers
    return next((str(value).strip() for name, value in items.items() if str(name).lower() == "retry-after"), None)


def _until(date: str, now: datetime) -> float:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())
