"""The chat templates of Llama 3: without (3) and with dates in the system message (3.1 and later)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reward_loop.rinker.rendering.message import Message
from reward_loop.rinker.rendering.renderer import NOBODYS, Piece, Renderer

_HEADER, _HEADER_END, _END = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
TODAY = "26 Jul 2024"
"""What the template of 3.1 takes for today where it is told nothing: a model's input must not depend on the day."""


class LlamaRenderer(Renderer):
    """Llama 3. With `knowledge_date` (3.1: "December 2023") every conversation begins with a system message that names dates."""

    end_of_turn = _END

    def __init__(self, tokenizer: Any, *, knowledge_date: str | None = None, today: str = TODAY) -> None:
        super().__init__(tokenizer)
        self._dates = None if knowledge_date is None else f"Cutting Knowledge Date: {knowledge_date}\nToday Date: {today}\n\n"

    def pieces(self, messages: Sequence[Message], *, generation_prompt: bool) -> Iterator[Piece]:
        """See `Renderer`."""
        yield Piece(self.tokenizer.bos_token, control=True)
        rest = range(len(messages))
        if self._dates is not None:
            given = messages[0]["role"] == "system"
            yield from _turn(0 if given else NOBODYS, "system", self._dates, messages[0]["content"] if given else "")
            rest = range(int(given), len(messages))
        for place in rest:
            yield from _turn(place, messages[place]["role"], "", messages[place]["content"])
        if generation_prompt:
            yield from _header(NOBODYS, "assistant")

    def between_turns(self) -> Iterator[Piece]:
        """See `Renderer`."""
        yield from ()

    def later_messages(self, messages: Sequence[Message]) -> Iterator[Piece]:
        """See `Renderer`."""
        for place, message in enumerate(messages):
            yield from _turn(place, message["role"], "", message["content"])
        yield from _header(NOBODYS, "assistant")


def _header(place: int, role: str, more: str = "") -> Iterator[Piece]:
    yield Piece(_HEADER, place, control=True)
    yield Piece(role, place)
    yield Piece(_HEADER_END, place, control=True)
    yield Piece(f"\n\n{more}", place)


def _turn(place: int, role: str, before: str, content: str) -> Iterator[Piece]:
    yield from _header(place, role, before)
    yield Piece(content.strip(), place, spoken=True)
    yield Piece(_END, place, spoken=True, control=True)
