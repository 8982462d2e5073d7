"""What a conversation is made of, and how the reading of an answer ended."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NotRequired, TypeAlias, TypedDict

from reward_loop.errors import DataError


class Message(TypedDict):
    """One turn, as chat templates take it."""

    role: str
    content: str
    reasoning_content: NotRequired[str]
    """What the model thought before it answered, where its template keeps that apart."""


class ParseTermination(Enum):
    """How a sampled answer ended."""

    STOP_SEQUENCE = "stop_sequence"
    """With the token that ends a turn: a whole answer."""
    EOS = "eos"
    """With the token that ends all text: the model stopped, but not as its template says."""
    MALFORMED = "malformed"
    """With neither, so it was cut off; or something came behind the end."""

    @property
    def is_stop_sequence(self) -> bool:
        """Whether the answer ended as it should."""
        return self is ParseTermination.STOP_SEQUENCE


class TrainOnWhat(Enum):
    """Which tokens of a conversation a supervised example teaches."""

    LAST_ASSISTANT_MESSAGE = "last_assistant_message"
    ALL_ASSISTANT_MESSAGES = "all_assistant_messages"
    ALL_MESSAGES = "all_messages"
    ALL_USER_AND_SYSTEM_MESSAGES = "all_user_and_system_messages"
    ALL_TOKENS = "all_tokens"


MessageLike: TypeAlias = Message | Mapping[str, str]


def checked(messages: object) -> list[Message]:
    """Return the messages; raises DataError for what is no list of mappings with the texts `role` and `content`."""
    if not isinstance(messages, list | tuple) or not messages:
        raise DataError(f"a conversation is a list of at least one message; it is {messages!r:.100}")
    return [_checked(message, place) for place, message in enumerate(messages)]


def _checked(message: object, place: int) -> Message:
    if not isinstance(message, Mapping):
        raise DataError(f"messages[{place}] must be a mapping with role and content; it is {message!r:.100}")
    for key in ("role", "content"):
        if not isinstance(message.get(key), str):
            raise DataError(f"messages[{place}][{key!r}] must be text; it is {message.get(key)!r:.100}")
    turn = Message(role=message["role"], content=message["content"])
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        turn["reasoning_content"] = reasoning
    elif reasoning is not None:
        raise DataError(f"messages[{place}]['reasoning_content'] must be text; it is {reasoning!r:.100}")
    return turn
