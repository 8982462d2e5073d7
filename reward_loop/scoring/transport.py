"""How requests get to a service and back: one deadline over all attempts, one way in which failures become errors of the tree.

Invariants: a redirect is never followed; at most MAX_BODY_BYTES are read; the API key is in no error, log or reply, whatever the
service sends back; a 429 is reported to the reservation under which the sample is scored.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
from pydantic import BaseModel, ValidationError
from yarl import URL

from reward_loop.errors import (
    ConfigError,
    RequestRejected,
    RewardServerError,
    ServerAsleep,
    ServerUnavailable,
    TooManyRequests,
)
from reward_loop.limits.current import current_reservation
from reward_loop.limits.retry_after import retry_after_s
from reward_loop.scoring.retries import UNTIL_THE_DEADLINE, Fate, Patience, fate_of
from reward_loop.scoring.sessions import session

MAX_BODY_BYTES = 1 << 24
"""Size up to which a response is read."""

SHOWN = 1000
"""Characters of a body that an error repeats."""

_SECRET = 8
_ROUTER = "X-Reward-Router"


@dataclass(frozen=True, slots=True)
class Call:
    """One request: where it goes, what it carries, how long it may take with all its attempts, and who shows which key."""

    url: URL
    timeout_s: float
    payload: bytes | None = None
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    patience: Patience = UNTIL_THE_DEADLINE


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, whatever the status."""

    url: URL
    status: int
    headers: Mapping[str, str]
    body: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class _Broken:
    """An attempt that brought no reply."""

    fate: Fate
    error: ServerUnavailable


class _Complaint(BaseModel):
    type: str | None = None
    message: str = ""


class _Complaining(BaseModel):
    error: _Complaint


async def send(call: Call, until: float | None = None) -> Reply:
    """Return the reply to a request, after as many attempts as its patience and its deadline allow.

    `until` is the loop's time at which it must end, where that is not `timeout_s` from now. Raises ServerUnavailable where there
    was no reply: no connection, one that broke, no answer in time.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + call.timeout_s if until is None else until
    before, attempt = "", 0
    while True:
        attempt += 1
        try:
            async with asyncio.timeout_at(end):
                answer = await _once(call, attempt)
        except TimeoutError:
            late = f"{call.url} did not answer within {call.timeout_s} s (timeout_s); raise it, or ask for less"
            raise ServerUnavailable(late + before) from None
        fate, asked_s = _fate(answer)
        pause_s = call.patience.pause_s(fate, attempt, end - clock(), random.random(), asked_s)  # noqa: S311
        if pause_s is None:
            if isinstance(answer, Reply):
                return answer
            raise answer.error
        before = f"; before that: {failure_text(answer) if isinstance(answer, Reply) else answer.error}"
        await asyncio.sleep(pause_s)


def failure(reply: Reply) -> RewardServerError:
    """Return the error that a reply with any other status than 200 stands for."""
    said, status = failure_text(reply), reply.status
    if _is_asleep(reply):
        return ServerAsleep(f"{said}; hold a lease of the RewardModelManager while you ask")
    if status == 429:
        wait_s = retry_after_s(reply.headers)
        if (reservation := current_reservation()) is not None:
            reservation.throttled(wait_s)
        return TooManyRequests(said, reply.body[:SHOWN], wait_s)
    if 400 <= status < 500:
        return RequestRejected(said, status, reply.body[:SHOWN])
    return ServerUnavailable(said) if status >= 500 else RewardServerError(f"{said}; it must be 200")


def failure_text(reply: Reply) -> str:
    """Return what a reply says about why it failed: the router's own words, or the beginning of the body."""
    text = reply.body[:SHOWN].strip() or "nothing more"
    if kind := reply.headers.get(_ROUTER):
        text = f"{_complaint(reply.body).message[:SHOWN] or text} ({kind})"
    tried = f" to the last of {reply.attempts} attempts" if reply.attempts > 1 else ""
    return f"{reply.url} answered {reply.status}{tried}: {text}"


def encoded(request: Mapping[str, object], what: str) -> bytes:
    """Return a request's body; ConfigError for what is no JSON, such as NaN."""
    try:
        return json.dumps(request, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} can't send {sorted(request)} as JSON: {error}") from None


def misfit(error: ValidationError) -> str:
    """Return in one line why a body does not have the promised form."""
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()[:3])


async def _once(call: Call, attempt: int) -> Reply | _Broken:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {call.key}"} if call.key else {})
    method = "GET" if call.payload is None else "POST"
    client = await session()
    try:
        async with client.request(
            method,
            call.url,
            data=call.payload,
            headers=headers | dict(call.headers),
            allow_redirects=False,  # one would carry the conversation somewhere that nobody configured
        ) as response:
            body = (await _read(response)).decode("utf-8", "replace")
    except (aiohttp.ClientError, OSError) as error:
        tried = f" in {attempt} attempts" if attempt > 1 else ""
        why = ServerUnavailable(f"{call.url} can't be reached{tried}: {type(error).__name__}: {error}")
        why.__cause__ = error
        return _Broken("not begun" if isinstance(error, aiohttp.ClientConnectorError) else "lost", why)
    secret = call.key is not None and len(call.key) >= _SECRET  # a placeholder such as EMPTY may be a word of the reply
    body = body.replace(str(call.key), "***") if secret else body
    return Reply(call.url, response.status, response.headers, body, attempt)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RewardServerError(f"{response.url} sent more than {MAX_BODY_BYTES} bytes; no reply is that long")
    return bytes(body)


def _fate(answer: Reply | _Broken) -> tuple[Fate, float | None]:
    """Return what became of an attempt, and the seconds that the service asked to wait."""
    if isinstance(answer, _Broken):
        return answer.fate, None
    if answer.status == 429 and current_reservation() is not None:
        return "final", None  # the limit decides when everybody's next request may go out
    return fate_of(answer.status, _is_asleep(answer)), retry_after_s(answer.headers)


def _is_asleep(reply: Reply) -> bool:
    """Whether the router or the server itself says that the model sleeps."""
    return reply.headers.get(_ROUTER) == "asleep" or (reply.status == 503 and _complaint(reply.body).type == "asleep")


def _complaint(body: str) -> _Complaint:
    try:
        return _Complaining.model_validate_json(body).error
    except ValidationError:
        return _Complaint()
