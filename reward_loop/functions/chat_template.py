"""The reward model's chat template: from conversations to the token ids that its server scores.

A conversation's ids are those that transformers gives (`apply_chat_template(tokenize=True)`) as long as no message says what the
tokenizer reads as a guarded token: a special one, one that frames turns, a step tag. Where one does, its words are tokenised as
the ordinary text that they are. Invariant: the guarded tokens of a conversation, in order, are those of the same conversation
with innocuous texts; so a rollout can't forge turns, ends or steps, whatever the tokenizer or the template make of its text. What
a template marks with ordinary text only (`USER:`) can't be told from a rollout that says so.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.conversation import Conversation, innocuous
from reward_loop.functions.text_encoder import Mark, added_tokens, text_encoder

_FORMS = 1024
_REMEDY = "give one that takes a user's and an assistant's turn as reward_model.scoring.chat_template"


class ChatTemplate:
    """Encodes conversations with a tokenizer, which must not be used elsewhere; `file` holds a template in place of its own.

    ConfigError where there is no template, it drops what is said, or `tag` (what follows each step) is no token of its own.
    """

    def __init__(self, tokenizer: Any, file: str | None = None, tag: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = _read(file)
        if file is None and not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"the reward model's tokenizer ({tokenizer.name_or_path}) has no chat template; {_REMEDY}")
        added = added_tokens(tokenizer)
        if tag is not None and tag not in added:
            raise ConfigError(
                f"the step tag {tag!r} is no added token of the reward model's tokenizer, so what it is read as depends on the "
                f"text around it; set reward_model.scoring.step_tag to one of {sorted(added)[:50]}"
            )
        frame, end = self._frame()
        self._encoder = text_encoder(tokenizer, [text for text in added if text in frame or text == tag])
        self._of_form: LRUCache[object, list[int]] = LRUCache(_FORMS)
        self.tag_id = None if tag is None else added[tag][0]
        """The id of the step tag."""
        self.end_tokens = len(self._encoder.ids([end])[0])
        """Number of tokens that close a conversation, after the response's own."""
        self.first_token: int | None = tokenizer.bos_token_id
        """The token that begins every text, where the tokenizer has one."""

    def encode(self, conversations: Sequence[Conversation]) -> list[list[int] | Exception]:
        """Return the ids of each conversation, or what is wrong with it."""
        texts = [self._rendered(conversation) for conversation in conversations]
        ids = iter(self._encoder.ids([text for text in texts if isinstance(text, str)]))
        return [
            self._unforged(conversation, next(ids)) if isinstance(text, str) else text
            for conversation, text in zip(conversations, texts, strict=True)
        ]

    def _unforged(self, conversation: Conversation, ids: list[int]) -> list[int] | Exception:
        """Return the ids, or those of the conversation as literal text if a message holds a guarded token."""
        try:
            expected = self._expected(conversation)
            return ids if self._guarded(ids) == expected else self._literal(conversation, expected)
        except DataError as error:
            return error

    def _expected(self, conversation: Conversation) -> list[int]:
        """Return the guarded tokens of a conversation of this form."""
        form = conversation.form
        expected = self._of_form.get(form)
        if expected is None:
            [ids] = self._encoder.ids([self._render(conversation.with_texts(innocuous).messages)])
            expected = self._guarded(ids)
            if form is not None:
                self._of_form[form] = expected
        return expected

    def _guarded(self, ids: Sequence[int]) -> list[int]:
        guarded = self._encoder.guarded
        return [token for token in ids if token in guarded]

    def _literal(self, conversation: Conversation, expected: Sequence[int]) -> list[int]:
        hidden = _Hidden(self._encoder.marks)
        text = self._render(conversation.with_texts(hidden.hide).messages)
        marks = self._encoder.marks(text)
        pieces = [hidden.shown(piece) for piece in _between(text, marks)]
        ids = self._encoder.literal(pieces, [mark.token for mark in marks])
        if self._guarded(ids) != expected:
            raise DataError(
                "the reward model's tokenizer and chat template make special tokens of what a message says, and can't be kept "
                "from it; give another template as reward_model.scoring.chat_template, or set reward_model.on_error=mask"
            )
        return ids

    def _rendered(self, conversation: Conversation) -> str | DataError:
        try:
            return self._render(conversation.messages)
        except DataError as error:
            return error

    def _render(self, messages: list[dict[str, Any]]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(messages, chat_template=self._template, tokenize=False)
        except Exception as error:  # a template is a program of its own, and may raise anything
            roles = [message["role"] for message in messages]
            raise DataError(
                f"the reward model's chat template takes no conversation of the turns {roles}: {type(error).__name__}: {error}; "
                "change raw_prompt, or give another template as reward_model.scoring.chat_template"
            ) from error
        return text

    def _frame(self) -> tuple[str, str]:
        """Return the text around a user's and an assistant's turn, and the part of it that follows both."""
        user, assistant = (secrets.token_hex(8) for _ in range(2))
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        try:
            text = self._render(messages)
        except DataError as error:
            raise ConfigError(f"the reward model's chat template can't be used: {error.__cause__}; {_REMEDY}") from error
        if user not in text or assistant not in text:
            raise ConfigError(
                f"the reward model's chat template drops what the user or the assistant says: {text!r:.200}; {_REMEDY}"
            )
        end = text.rpartition(assistant)[2]
        return text.partition(user)[0] + end, end


class _Hidden:
    """Words in the place of the guarded tokens that texts name, so that a template takes them for any other words."""

    def __init__(self, marks: Callable[[str], Sequence[Mark]]) -> None:
        self._marks = marks
        self._names: list[str] = []
        self._key = f"q{secrets.token_hex(8)}q"
        self._words = re.compile(rf"{self._key}(\d+)q")

    def hide(self, text: str) -> str:
        """Return the text with a word for each guarded token."""
        marks = self._marks(text)
        kept = _between(text, marks)
        for place, mark in enumerate(marks):
            found = text[mark.start : mark.end]  # with the blanks around it, for tokens that take these in
            name = found.strip()
            before, _, after = found.partition(name)
            kept[place] += f"{before}{self._key}{len(self._names)}q"
            kept[place + 1] = after + kept[place + 1]
            self._names.append(name)
        return "".join(kept)

    def shown(self, text: str) -> str:
        """Return the text with the names of the tokens again."""
        return self._words.sub(lambda match: self._names[int(match[1])], text)


def _between(text: str, marks: Sequence[Mark]) -> list[str]:
    starts, ends = [mark.start for mark in marks], [mark.end for mark in marks]
    return [text[start:end] for start, end in zip([0, *ends], [*starts, len(text)], strict=True)]


def _read(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"reward_model.scoring.chat_template={file}: {error}; name a text file with a Jinja template"
        ) from error
