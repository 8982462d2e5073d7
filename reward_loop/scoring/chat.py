"""Chat completions of an OpenAI-compatible service: a judge elsewhere, or a generative reward model behind the router.

Invariants: a reply that is no chat completion is an error of the tree; usage is reported to the reservation under which the
sample is scored; the key of a service elsewhere never goes to the router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter, ValidationError

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.limits.current import current_reservation
from reward_loop.scoring.chat_reply import ChatReply
from reward_loop.scoring.endpoint import api_key, chat_url
from reward_loop.scoring.model_version import version_of
from reward_loop.scoring.retries import UNTIL_THE_DEADLINE, Patience
from reward_loop.scoring.transport import SHOWN, Call, Reply, encoded, failure, misfit, send

Messages = Sequence[Mapping[str, object]]

_ELSEWHERE = Patience(attempts=3)
_KEY = "OPENAI_API_KEY"
_BODY = TypeAdapter(dict[str, object])


async def chat_complete(
    messages: Messages | None = None,
    *,
    router_address: str | None = None,
    chat_complete_request: Mapping[str, object] | None = None,
    model: str | None = None,
    base_url: str | None = None,
    reward_router_address: str | None = None,
    api_key_env: str | None = _KEY,
    timeout_s: float = 60.0,
    **sampling: object,
) -> ChatReply:
    """Return the completion of a conversation: `messages` and further keywords, or a whole `chat_complete_request`.

    The service is at `base_url`, with or without /v1, which must be told the `model`, or behind the router at `router_address`
    (or `reward_router_address`), which gets no OPENAI_API_KEY. What may pass (429, 503, no connection) is tried again within
    `timeout_s`. Raises TooManyRequests (429), RequestRejected (other 4xx), ServerAsleep, ServerUnavailable (5xx, no connection,
    no answer in time), RewardServerError for a body that is no completion, and ConfigError for arguments that can't work.
    """
    request = _request(messages, chat_complete_request, model, sampling)
    if None not in (router_address, reward_router_address):
        raise ConfigError("router_address and reward_router_address are the same thing; pass one of them")
    router = reward_router_address if router_address is None else router_address
    url = chat_url(base_url, router)
    if base_url is not None and "model" not in request:
        raise ConfigError(f"{url} must be told which model to ask: pass model=…")
    key = None if base_url is None and api_key_env == _KEY else api_key(api_key_env, url)
    payload = encoded(request, "chat_complete")
    reply = await send(Call(url, timeout_s, payload, key, patience=UNTIL_THE_DEADLINE if base_url is None else _ELSEWHERE))
    if reply.status != 200:
        raise failure(reply)
    completion = _completion(reply)
    if completion.usage is not None and (reservation := current_reservation()) is not None:
        reservation.used(completion.usage.tokens)
    return completion


def _request(
    messages: Messages | None, request: Mapping[str, object] | None, model: str | None, sampling: Mapping[str, object]
) -> dict[str, object]:
    """Return the body to send; keywords go before the same keys of a request."""
    if (messages is None) == (request is None):
        raise ConfigError("chat_complete takes either messages or a chat_complete_request that holds them")
    body = {**(request or {}), **({} if messages is None else {"messages": list(messages)}), **sampling}
    if model is not None:
        body["model"] = model
    if "messages" not in body:
        raise ConfigError(f"chat_complete was given no messages but {sorted(body)}")
    if body.get("stream"):
        raise ConfigError("chat_complete returns a whole reply; leave stream=True out")
    return body


def _completion(reply: Reply) -> ChatReply:
    try:
        # Another service may mean something else by "version", in any form: the header is a reward server's own word.
        completion: dict[str, object] = _BODY.validate_json(reply.body)
        return ChatReply.model_validate({**completion, "version": version_of(reply)})
    except ValidationError as error:
        raise RewardServerError(f"{reply.url} sent no chat completion ({misfit(error)}): {reply.body[:SHOWN]}") from None
