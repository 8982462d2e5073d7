"""What all renderers share: a family says what it writes in pieces, and pieces become tokens here.

Invariants: the tokens are those of the family's chat template, for any conversation; a control token is written by the renderer
alone: text of a message that looks like one is encoded as text. Tokens that were sampled are never decoded and encoded again
by `continue_prompt`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from reward_loop.errors import ConfigError, DataError
from reward_loop.rinker.rendering.message import Message, MessageLike, ParseTermination, TrainOnWhat, checked
from reward_loop.rinker.types import ModelInput

NOBODYS = -1
"""The message of a piece that belongs to no message, such as the prompt for an answer."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of a rendered conversation, or one control token."""

    text: str
    message: int = NOBODYS
    spoken: bool = False
    """Whether whoever has the turn says it: its content and its end, as opposed to its header."""
    control: bool = False


class Renderer(ABC):
    """Writes conversations as the tokens of a chat template, and reads answers. `tokenizer` is one of transformers.

    Raises ConfigError for a tokenizer that lacks a control token, DataError for what is no conversation.
    """

    end_of_turn: str
    """The control token that ends an answer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._control: dict[str, int] = {}
        self._end = self._control_id(self.end_of_turn)

    @abstractmethod
    def pieces(self, messages: Sequence[Message], *, generation_prompt: bool) -> Iterator[Piece]:
        """Yield what the template writes; `generation_prompt` adds what stands before an answer."""

    @abstractmethod
    def between_turns(self) -> Iterator[Piece]:
        """Yield what the template writes behind the token that ends an answer, when more follows."""

    @abstractmethod
    def later_messages(self, messages: Sequence[Message]) -> Iterator[Piece]:
        """Yield messages that do not begin a conversation, and the prompt for the next answer."""

    def build_generation_prompt(self, messages: Sequence[MessageLike]) -> ModelInput:
        """Return the conversation and what the template puts before an answer."""
        return ModelInput.from_ints(self._encoded(self.pieces(checked(messages), generation_prompt=True))[0])

    def continue_prompt(self, prompt: ModelInput, answer: Sequence[int], messages: Sequence[MessageLike]) -> ModelInput:
        """Return a prompt that extends `prompt` and its sampled `answer` by more messages, token by token.

        An answer without its end is ended. A template that changes earlier turns later (thoughts that it drops) would give
        something else.
        """
        ended = [*answer] if answer and answer[-1] == self._end else [*answer, self._end]
        behind, _ = self._encoded([*self.between_turns(), *self.later_messages(checked(messages))])
        return ModelInput.from_ints([*prompt.to_ints(), *ended, *behind])

    def build_supervised_example(
        self, messages: Sequence[MessageLike], train_on_what: TrainOnWhat = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    ) -> tuple[ModelInput, torch.Tensor]:
        """Return all tokens of a conversation and the weight of each, 1.0 or 0.0: float32 [tokens].

        What is taught of a message is what its speaker says, with the end of the turn, never its header.
        """
        turns = checked(messages)
        tokens, pieces = self._encoded(self.pieces(turns, generation_prompt=False))
        weights = [float(_taught(piece, turns, train_on_what)) for piece in pieces]
        if not any(weights):
            raise DataError(f"nothing is taught by {train_on_what.value}: the roles are {[turn['role'] for turn in turns]}")
        return ModelInput.from_ints(tokens), torch.tensor(weights, dtype=torch.float32)

    def get_stop_sequences(self) -> list[int]:
        """Return the token that ends an answer, for `SamplingParams.stop`."""
        return [self._end]

    def parse_response(self, response: Sequence[int] | str) -> tuple[Message, ParseTermination]:
        """Return the assistant's message, and how it ended.

        `response` is the sampled tokens, or text in which the control tokens were kept.
        """
        tokens = self._tokens_of_text(response) if isinstance(response, str) else list(response)
        ends = [place for place, token in enumerate(tokens) if token in (self._end, self.tokenizer.eos_token_id)]
        if not ends:
            return self._message(self._text(tokens)), ParseTermination.MALFORMED
        message = self._message(self._text(tokens[: ends[0]]))
        if ends[0] != len(tokens) - 1:
            return message, ParseTermination.MALFORMED
        return message, ParseTermination.STOP_SEQUENCE if tokens[-1] == self._end else ParseTermination.EOS

    def _message(self, text: str) -> Message:
        """Read what an assistant said."""
        return Message(role="assistant", content=text)

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _tokens_of_text(self, text: str) -> list[int]:
        """Encode text of which one of the ends may be the last part; nothing else in it is a control token."""
        for end in (self.end_of_turn, self.tokenizer.eos_token):
            if end and text.endswith(end):
                return [*self._ids(text.removesuffix(end)), self._control_id(end)]
        return self._ids(text)

    def _encoded(self, pieces: Iterator[Piece] | Sequence[Piece]) -> tuple[list[int], list[Piece]]:
        """Return the tokens, and for each the piece that it is of.

        Text between two control tokens is encoded in one, as the template's is: what is merged across pieces is the later's.
        """
        tokens: list[int] = []
        owners: list[Piece] = []
        run: list[Piece] = []
        for piece in [*pieces, Piece("", control=True)]:
            if not piece.control:
                run.append(piece)
                continue
            for token, owner in self._encoded_run(run):
                tokens.append(token)
                owners.append(owner)
            run = []
            if piece.text:
                tokens.append(self._control_id(piece.text))
                owners.append(piece)
        return tokens, owners

    def _encoded_run(self, run: Sequence[Piece]) -> list[tuple[int, Piece]]:
        tokens = self._ids("".join(piece.text for piece in run))
        owned: list[tuple[int, Piece]] = []
        for place, piece in enumerate(run):
            last = place == len(run) - 1
            end = len(tokens) if last else _common(tokens, self._ids("".join(one.text for one in run[: place + 1])))
            owned += [(token, piece) for token in tokens[len(owned) : end]]
        return owned

    def _ids(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids

    def _control_id(self, text: str) -> int:
        if text not in self._control:
            token = self.tokenizer.convert_tokens_to_ids(text)
            if token is None or token == getattr(self.tokenizer, "unk_token_id", None):
                raise ConfigError(
                    f"the tokenizer has no token {text!r}, which {type(self).__name__} writes; take another renderer"
                )
            self._control[text] = int(token)
        return self._control[text]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that both begin with."""
    for place, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return place
    return min(len(one), len(other))


def _taught(piece: Piece, turns: Sequence[Message], what: TrainOnWhat) -> bool:
    if what is TrainOnWhat.ALL_TOKENS:
        return True
    if piece.message == NOBODYS or not piece.spoken:
        return False
    role = turns[piece.message]["role"]
    match what:
        case TrainOnWhat.LAST_ASSISTANT_MESSAGE:
            last = max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=NOBODYS)
            return piece.message == last
        case TrainOnWhat.ALL_ASSISTANT_MESSAGES:
            return role == "assistant"
        case TrainOnWhat.ALL_USER_AND_SYSTEM_MESSAGES:
            return role in ("user", "system")
        case TrainOnWhat.ALL_MESSAGES:
            return True
