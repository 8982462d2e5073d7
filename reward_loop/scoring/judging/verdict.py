"""Verdicts whose form the server enforces while the judge writes (vLLM's `structured_outputs`).

Invariant: a verdict has the form that was asked for; a judge that gave none is an error, never a low score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

from pydantic import TypeAdapter, ValidationError

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.scoring.chat import Messages
from reward_loop.scoring.chat_reply import ChatReply
from reward_loop.scoring.judging.asking import Judge, ask
from reward_loop.scoring.transport import SHOWN, misfit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Verdict(Generic[T]):
    """What the judge decided, the text it wrote, and the tokens that this took."""

    value: T
    text: str
    tokens: int


async def structured_verdict(
    messages: Messages, form: type[T], *, sampling: Mapping[str, object] | None = None, **judge: Unpack[Judge]
) -> Verdict[T]:
    """Return the judge's verdict in a form: a pydantic model, a dataclass, a TypedDict or any type that pydantic can describe.

    Raises RewardServerError for a text of another form, such as one that max_tokens cut off.
    """
    adapter = TypeAdapter(form)
    reply = await ask(messages, {"structured_outputs": {"json": adapter.json_schema()}}, sampling, **judge)
    try:
        return Verdict(adapter.validate_json(reply.text), reply.text, reply.tokens)
    except ValidationError as error:
        raise unusable(reply, f"it is no {getattr(form, '__name__', form)} ({misfit(error)})") from None


async def choice_verdict(
    messages: Messages, choices: Sequence[str], *, sampling: Mapping[str, object] | None = None, **judge: Unpack[Judge]
) -> Verdict[str]:
    """Return the one of `choices` that the judge wrote; RewardServerError where it wrote anything else."""
    if len(set(choices)) < max(2, len(choices)) or not all(choices):
        raise ConfigError(f"choices={choices!r:.200} must be at least two different texts")
    reply = await ask(messages, {"structured_outputs": {"choice": list(choices)}}, sampling, **judge)
    chosen = reply.text.strip()
    if chosen not in choices:
        raise unusable(reply, f"it is none of {list(choices)!r:.300}")
    return Verdict(chosen, reply.text, reply.tokens)


def unusable(reply: ChatReply, why: str) -> RewardServerError:
    """Return the error of a judge whose answer can't be used."""
    cut = "; it was cut off: raise max_tokens" if reply.finish_reason == "length" else ""
    return RewardServerError(f"the judge {reply.model} wrote {reply.text[:SHOWN]!r}, but {why}{cut}")
