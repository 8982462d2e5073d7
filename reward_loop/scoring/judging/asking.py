"""How a judge is asked: where it is, and what goes with each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack

from reward_loop.errors import ConfigError
from reward_loop.scoring.chat import Messages, chat_complete
from reward_loop.scoring.chat_reply import ChatReply


class Judge(TypedDict, total=False):
    """Where a judge is: keywords that every function of this package takes."""

    router_address: str
    """The router's "host:port": `reward_router_address` of a reward function."""
    base_url: str
    """A vLLM server elsewhere, instead of the router."""
    model: str
    """Name of the model; not needed where the router has only one."""
    api_key_env: str | None
    """Environment variable with the key that the service wants."""
    timeout_s: float
    """Seconds that one request may take, all attempts together."""


async def ask(
    messages: Messages, fixed: Mapping[str, object], sampling: Mapping[str, object] | None, **judge: Unpack[Judge]
) -> ChatReply:
    """Return the reply to a conversation; `fixed` is decided by the way of asking, so `sampling` can't hold it too."""
    chosen = sampling or {}
    if twice := fixed.keys() & chosen.keys():
        raise ConfigError(f"sampling can't hold {sorted(twice)} here: this way of asking sets it itself")
    return await chat_complete(chat_complete_request={"messages": messages, **chosen, **fixed}, **judge)
