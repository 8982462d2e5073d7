"""The chat templates of Qwen: ChatML, with a system message of its own (2.5) or with thoughts (3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reward_loop.rinker.rendering.message import Message
from reward_loop.rinker.rendering.renderer import NOBODYS, Piece, Renderer

QWEN25_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
QWEN2_SYSTEM = "You are a helpful assistant."
_BEGIN, _END = "<|im_start|>", "<|im_end|>"
_THINK, _NO_THINK = "<think>\n", "</think>"


class QwenRenderer(Renderer):
    """Qwen 2 and 2.5; `default_system` is what their templates say where a conversation has no system message (None: nothing)."""

    end_of_turn = _END

    def __init__(self, tokenizer: Any, default_system: str | None = QWEN25_SYSTEM) -> None:
        super().__init__(tokenizer)
        self._default_system = default_system

    def pieces(self, messages: Sequence[Message], *, generation_prompt: bool) -> Iterator[Piece]:
        """See `Renderer`."""
        if self._default_system is not None and messages[0]["role"] != "system":
            yield from _turn(NOBODYS, "system", self._default_system)
        yield from self._turns(messages)
        if generation_prompt:
            yield from self.answer_header()

    def between_turns(self) -> Iterator[Piece]:
        """See `Renderer`."""
        yield Piece("\n")

    def later_messages(self, messages: Sequence[Message]) -> Iterator[Piece]:
        """See `Renderer`."""
        yield from self._turns(messages)
        yield from self.answer_header()

    def answer_header(self) -> Iterator[Piece]:
        """Yield what stands before an answer."""
        yield Piece(_BEGIN, control=True)
        yield Piece("assistant\n")

    def _turns(self, messages: Sequence[Message]) -> Iterator[Piece]:
        for place, message in enumerate(messages):
            if message["role"] == "tool":
                yield from _tool_turn(messages, place)
            else:
                yield from self._spoken_turn(messages, place)

    def _spoken_turn(self, messages: Sequence[Message], place: int) -> Iterator[Piece]:
        message = messages[place]
        yield from _turn(place, message["role"], message["content"])


class Qwen3Renderer(QwenRenderer):
    """Qwen 3: an answer begins with the model's thoughts, which are dropped once the user has spoken again.

    `thinking=False` is the template's `enable_thinking=False`: the prompt ends with empty thoughts.
    """

    def __init__(self, tokenizer: Any, *, thinking: bool = True) -> None:
        super().__init__(tokenizer, default_system=None)
        self._thinking = thinking

    def answer_header(self) -> Iterator[Piece]:
        """See `QwenRenderer`."""
        yield from super().answer_header()
        if not self._thinking:
            yield Piece(_thoughts(""))

    def _spoken_turn(self, messages: Sequence[Message], place: int) -> Iterator[Piece]:
        message = messages[place]
        if message["role"] != "assistant":
            yield from super()._spoken_turn(messages, place)
            return
        reasoning, content = _split(message)
        header = "assistant\n"
        last = place == len(messages) - 1
        if place > _last_query(messages) and (last or reasoning):
            # Without thinking the empty thoughts are the prompt's, so that nobody is taught to write them.
            if not self._thinking and not reasoning.strip("\n"):
                header, content = header + _thoughts(""), content.lstrip("\n")
            else:
                content = _thoughts(reasoning) + content.lstrip("\n")
        yield from _turn(place, header.removesuffix("\n"), content)

    def _message(self, text: str) -> Message:
        """Keep the thoughts apart, where there are any and they ended."""
        if _NO_THINK not in text:
            return super()._message(text)
        reasoning, content = _split(Message(role="assistant", content=text))
        message = Message(role="assistant", content=content)
        if reasoning:
            message["reasoning_content"] = reasoning
        return message


def _turn(place: int, role: str, content: str) -> Iterator[Piece]:
    yield Piece(_BEGIN, place, control=True)
    yield Piece(f"{role}\n", place)
    yield Piece(content, place, spoken=True)
    yield Piece(_END, place, spoken=True, control=True)
    yield Piece("\n", place)


def _tool_turn(messages: Sequence[Message], place: int) -> Iterator[Piece]:
    """Yield one answer of a tool; those that follow each other make one turn of the user."""
    if place == 0 or messages[place - 1]["role"] != "tool":
        yield Piece(_BEGIN, place, control=True)
        yield Piece("user", place)
    yield Piece("\n<tool_response>\n", place)
    yield Piece(messages[place]["content"], place, spoken=True)
    yield Piece("\n</tool_response>", place)
    if place == len(messages) - 1 or messages[place + 1]["role"] != "tool":
        yield Piece(_END, place, control=True)
        yield Piece("\n", place)


def _thoughts(reasoning: str) -> str:
    stripped = reasoning.strip("\n")
    return f"{_THINK}{stripped}\n{_NO_THINK}\n\n"


def _split(message: Message) -> tuple[str, str]:
    """Return thoughts and answer, which the content may hold both."""
    content = message["content"]
    if "reasoning_content" in message:
        return message["reasoning_content"], content
    if _NO_THINK not in content:
        return "", content
    before = content.split(_NO_THINK)[0]
    return before.rstrip("\n").split("<think>")[-1].lstrip("\n"), content.split(_NO_THINK)[-1].lstrip("\n")


def _last_query(messages: Sequence[Message]) -> int:
    """Return the place of the last message of the user that is no answer of a tool; without one, of the last message."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        wrapped = message["content"].startswith("<tool_response>") and message["content"].endswith("</tool_response>")
        if message["role"] == "user" and not wrapped:
            return place
    return len(messages) - 1
