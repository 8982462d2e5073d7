"""One question to the router's /admin, from another process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from reward_loop.errors import RouterError

_QUICK_S = 10.0


async def ask_admin(
    address: str, token: str, method: str, path: str, order: dict[str, Any] | None = None, wait_s: float = 0.0
) -> dict[str, Any]:
    """Return the answer, for which the router at "host:port" may itself wait `wait_s` seconds.

    Raises RouterError, with what the router said, when it refuses or does not answer in time; aiohttp.ClientConnectionError when
    no router is there.
    """
    url, timeout_s = f"http://{address}{path}", wait_s + _QUICK_S
    try:
        # A connection that was kept might have been closed just now, and then a lost answer would look like a lost router.
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession() as session,
            session.request(method, url, json=order, headers={"Authorization": f"Bearer {token}"}) as reply,
        ):
            status, text = reply.status, await reply.text()
    except TimeoutError:
        raise RouterError(f"{method} {url}: the router did not answer within {timeout_s:g} s") from None
    except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
        raise RouterError(f"{method} {url}: the router's answer is no HTTP: {error}") from error
    if status >= 400:
        raise RouterError(f"{method} {url}: {status}: {_message(text)}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def _message(text: str) -> str:
    """Return what the router says in an error; the beginning of anything else."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return text[:500]
