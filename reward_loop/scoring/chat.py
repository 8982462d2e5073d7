"""Chat completions of an OpenAI-compatible service: a judge elsewhere, or a generative reward model behind the router.

Invariants: a reply has a text that the model wrote, everything else is an error of the tree; the API key is in no error, log or
reply, whatever the service sends back; usage and 429 are reported to the reservation under which the sample is scored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from pydantic import BaseModel, Field, ValidationError
from yarl import URL

from reward_loop.errors import ConfigError, RequestRejected, RewardServerError, ServerUnavailable, TooManyRequests
from reward_loop.limits.current import current_reservation
from reward_loop.limits.retry_after import retry_after_s
from reward_loop.scoring.endpoint import api_key, chat_url
from reward_loop.scoring.sessions import session

MAX_BODY_BYTES = 1 << 24
"""Size up to which a response is read."""

_SHOWN = 1000
_SECRET = 8


class ChatUsage(BaseModel, frozen=True):
    """The tokens that a service counted."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.completion_tokens if self.total_tokens is None else self.total_tokens


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What the model answered; `model` is the name that the service gave, `usage` None where it counted nothing."""

    text: str
    usage: ChatUsage | None
    finish_reason: str | None
    model: str | None


class _Message(BaseModel):
    content: str


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: ChatUsage | None = None
    model: str | None = None


async def chat_complete(
    messages: Sequence[Mapping[str, object]],
    *,
    model: str,
    base_url: str | None = None,
    reward_router_address: str | None = None,
    api_key_env: str | None = "OPENAI_API_KEY",
    timeout_s: float = 60.0,
    **sampling: object,
) -> ChatReply:
    """Return the first completion of a conversation; further keywords (temperature, max_tokens, …) go to the service as they are.

    The service is at `base_url`, with or without /v1, or behind `reward_router_address`, which gets no key. Raises
    TooManyRequests (429), RequestRejected (other 4xx), ServerUnavailable (5xx, no connection, no answer within `timeout_s`),
    RewardServerError for a body without a text, and ConfigError for arguments that can't work.
    """
    if sampling.get("stream"):
        raise ConfigError("chat_complete returns a whole reply; leave stream=True out")
    url = chat_url(base_url, reward_router_address)
    key = None if base_url is None else api_key(api_key_env, url)
    status, headers, body = await _post(url, key, _encoded({"model": model, "messages": list(messages), **sampling}), timeout_s)
    if status != 200:
        raise _failure(url, status, headers, body)
    reply = _reply(url, body)
    if reply.usage is not None and (reservation := current_reservation()) is not None:
        reservation.used(reply.usage.tokens)
    return reply


async def _post(url: URL, key: str | None, payload: bytes, timeout_s: float) -> tuple[int, Mapping[str, str], str]:
    """Return the response's status, headers and body, less the key should the service repeat it."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    client = await session()
    try:
        async with (
            asyncio.timeout(timeout_s),
            # A redirect would carry the conversation somewhere that nobody configured.
            client.post(url, data=payload, headers=headers, allow_redirects=False) as response,
        ):
            body = (await _read(response)).decode("utf-8", "replace")
    except TimeoutError:
        raise ServerUnavailable(f"{url} did not answer within {timeout_s} s (timeout_s); raise it, or ask for less") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ServerUnavailable(f"{url} can't be reached: {type(error).__name__}: {error}") from error
    secret = key is not None and len(key) >= _SECRET  # a placeholder such as EMPTY may be a word of the reply
    return response.status, response.headers, body.replace(str(key), "***") if secret else body


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RewardServerError(f"{response.url} sent more than {MAX_BODY_BYTES} bytes; no chat completion is that long")
    return bytes(body)


def _encoded(request: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"chat_complete can't send {sorted(request)} as JSON: {error}") from None


def _failure(url: URL, status: int, headers: Mapping[str, str], body: str) -> RewardServerError:
    said = f"{url} answered {status}: {body[:_SHOWN].strip() or 'nothing more'}"
    if status == 429:
        wait_s = retry_after_s(headers)
        if (reservation := current_reservation()) is not None:
            reservation.throttled(wait_s)
        return TooManyRequests(said, body[:_SHOWN], wait_s)
    if 400 <= status < 500:
        return RequestRejected(said, status, body[:_SHOWN])
    return ServerUnavailable(said) if status >= 500 else RewardServerError(f"{said}; it must be 200")


def _reply(url: URL, body: str) -> ChatReply:
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()[:3])
        raise RewardServerError(f"{url} sent no chat completion ({why}): {body[:_SHOWN]}") from None
    first = completion.choices[0]
    return ChatReply(first.message.content, completion.usage, first.finish_reason, completion.model)
