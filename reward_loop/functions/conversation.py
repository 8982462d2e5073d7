"""The conversation that a reward model scores: the prompt's messages and the response as the assistant's turn.

Invariant: nothing that a message says is dropped, added or reworded here; `raw_prompt` is not written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reward_loop.errors import DataError


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages before the response, and the response: its `steps`, each followed by `tag` (one step and "" without steps)."""

    prompt: tuple[Mapping[str, Any], ...]
    steps: tuple[str, ...]
    tag: str = ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as chat templates take them."""
        response = "".join(step + self.tag for step in self.steps)
        return [*map(dict, self.prompt), {"role": "assistant", "content": response}]

    @property
    def form(self) -> tuple[object, ...] | None:
        """What the conversation has in common with those of other texts, hashable; None where a message is not only text."""
        if any(set(message) != {"role", "content"} for message in self.prompt):
            return None
        return tuple((m["role"], _form(m["content"])) for m in self.prompt), tuple(map(_form, self.steps))

    def with_texts(self, change: Callable[[str], str]) -> Conversation:
        """Return the conversation with every text changed: what messages say and the steps, not the tags."""
        prompt = tuple({**m, "content": change(m["content"])} if m.get("content") else m for m in self.prompt)
        return replace(self, prompt=prompt, steps=tuple(map(change, self.steps)))


def innocuous(text: str) -> str:
    """Return a text without any meaning that is empty or blank where `text` is."""
    return "x" if text.strip() else text


def conversation(raw_prompt: object, steps: Sequence[str], tag: str = "") -> Conversation:
    """Return the conversation of a sample; DataError for a `raw_prompt` that is no list of messages of text.

    A list of text parts becomes the text that they are together; None (as beside tool calls) stays None.
    """
    if raw_prompt is None:
        raise DataError(
            "a reward model judges the response together with its prompt: the column 'raw_prompt' (the chat messages) is missing"
        )
    messages: Any = getattr(raw_prompt, "tolist", lambda: raw_prompt)()
    if not isinstance(messages, list | tuple) or not messages:
        raise DataError(f"raw_prompt must be a list of at least one chat message; it is {raw_prompt!r:.200}")
    return Conversation(tuple(_message(number, message) for number, message in enumerate(messages)), tuple(steps), tag)


def _message(number: int, message: object) -> Mapping[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
        raise DataError(f'raw_prompt[{number}] must be a message {{"role": …, "content": …}}; it is {message!r:.200}')
    content = message["content"]
    if isinstance(content, str) or content is None:
        return message
    if not isinstance(content, list | tuple):
        raise DataError(f"the content of raw_prompt[{number}] must be text; it is {content!r:.200}")
    return {**message, "content": "".join(_text(number, part) for part in content)}


def _text(number: int, part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise DataError(
        f"raw_prompt[{number}] holds a part of type {kind!r}, but this reward model is asked in text only; drop the part"
    )


def _form(text: str | None) -> str | None:
    return text and innocuous(text)
