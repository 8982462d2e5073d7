"""Preferences as token ids: the same ids that a server makes of the same text, or gets from the loop.

Invariant: both answers of a pair are encoded and cut in one way; ids lie in the model's vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from reward_loop.errors import DataError
from reward_loop.training.preferences import Message, Preference, Text, check_preference, kind_of

TooLong: TypeAlias = Literal["error", "drop", "truncate_left"]


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """Prompt and answer as token ids, for both answers, without padding."""

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    margin: float = 0.0
    label: int | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longer one."""
        return max(len(self.chosen), len(self.rejected))


def encode_preferences(
    preferences: Iterable[Preference],
    tokenizer: Any = None,
    *,
    max_tokens: int | None = None,
    too_long: TooLong = "error",
) -> list[EncodedPair]:
    """Encode each pair, in order; `tokenizer` (one of transformers) may be None where all are token ids already.

    Text is prompt and answer in one piece, with the special tokens that the tokenizer adds. Messages are encoded by its chat
    template; an answer that is a text, to a prompt of messages, is the assistant's turn. A pair longer than `max_tokens` is an
    error, is dropped, or loses its beginning. Raises DataError, with `sample` naming the pair by its place.
    """
    pairs: list[EncodedPair] = []
    for index, one in enumerate(preferences):
        try:
            pair = _encoded(one, tokenizer)
            if max_tokens is not None and pair.longest > max_tokens:
                if too_long == "drop":
                    continue
                pair = _cut(pair, max_tokens, too_long)
        except DataError as error:
            raise DataError(error.message, sample=f"preferences[{index}]") from error
        pairs.append(pair)
    return pairs


def _encoded(one: Preference, tokenizer: Any) -> EncodedPair:
    check_preference(one)
    chosen, rejected = (tuple(_ids(one.prompt, answer, tokenizer)) for answer in (one.chosen, one.rejected))
    if not chosen or not rejected:
        raise DataError(f"an answer together with its prompt is no token at all: {one!r:.120}")
    if chosen == rejected:
        raise DataError(f"chosen and rejected are the same tokens, though not the same {kind_of(one.chosen)}: {one.chosen!r:.80}")
    return EncodedPair(chosen, rejected, one.margin, one.label)


def _ids(prompt: Text, answer: Text, tokenizer: Any) -> Sequence[int]:
    kind = kind_of(answer)
    if kind == "token ids":
        return cast("list[int]", [*prompt, *answer])
    if tokenizer is None:
        raise DataError(f"the preference is {kind}: pass the tokenizer of the reward model")
    if kind == "text" and isinstance(prompt, str):
        ids: list[int] = tokenizer(prompt + str(answer))["input_ids"]
        return ids
    turns: Any = [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer
    messages = cast("list[Message]", [*prompt, *turns])
    if not getattr(tokenizer, "chat_template", None):
        raise DataError("the preference is messages, but the tokenizer has no chat_template; set one, or write the texts out")
    templated: list[int] = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    return templated


def _cut(pair: EncodedPair, max_tokens: int, too_long: TooLong) -> EncodedPair:
    if too_long == "error":
        raise DataError(
            f"the pair is {pair.longest} tokens, more than max_tokens={max_tokens}; raise it, or set too_long to 'drop' or "
            "'truncate_left'"
        )
    chosen, rejected = pair.chosen[-max_tokens:], pair.rejected[-max_tokens:]
    if chosen == rejected:
        raise DataError(f"after its beginning was cut off, to max_tokens={max_tokens}, both answers are the same")
    return EncodedPair(chosen, rejected, pair.margin, pair.label)
