"""From text to token ids in two ways: as transformers does it, and with the guarded tokens' names read as ordinary text.

Guarded are the tokens that only a chat template may write: special tokens, and what the caller names besides. Invariant: no
guarded id comes out of `literal` but those that were passed in.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol


class Mark(NamedTuple):
    """A guarded token in a text: where it begins and ends, and its id."""

    start: int
    end: int
    token: int


class TextEncoder(Protocol):
    """A tokenizer, of which this object alone makes use; never adds a token that the text does not name."""

    guarded: frozenset[int]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text as `tokenizer(text, add_special_tokens=False)` does."""
        ...

    def marks(self, text: str) -> list[Mark]:
        """Return the guarded tokens that the tokenizer reads in this text, in order."""
        ...

    def literal(self, pieces: Sequence[str], tokens: Sequence[int]) -> list[int]:
        """Return the ids of pieces of text with one guarded token between each two; all names in the pieces are text."""
        ...


def added_tokens(tokenizer: Any) -> dict[str, tuple[int, bool]]:
    """Return the id of each token beyond the vocabulary proper, by its name, and whether it is special."""
    special = set(tokenizer.all_special_ids)
    return {
        added.content: (number, added.special or number in special) for number, added in tokenizer.added_tokens_decoder.items()
    }


def text_encoder(tokenizer: Any, guard: Iterable[str] = ()) -> TextEncoder:
    """Return the encoder of a tokenizer that guards its special tokens and the added tokens that `guard` names."""
    named, unknown = set(guard), _unknown(tokenizer)
    guarded = {
        text: number
        for text, (number, special) in added_tokens(tokenizer).items()
        if text in named or (special and text != unknown)
    }
    return _FastEncoder(tokenizer.backend_tokenizer, guarded) if _is_fast(tokenizer) else _SlowEncoder(tokenizer, guarded)


def _unknown(tokenizer: Any) -> str | None:
    """Return the special token that stands for unknown characters and nothing else: ordinary text may hold it."""
    others = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.sep_token, tokenizer.cls_token)
    return None if tokenizer.unk_token in others else tokenizer.unk_token


def _is_fast(tokenizer: Any) -> bool:
    """Whether the tokenizer is the Rust one beneath it, without changes of its own."""
    from transformers import PreTrainedTokenizerFast

    names = ("__call__", "_encode_plus", "_batch_encode_plus")
    own = any(getattr(type(tokenizer), name, None) is not getattr(PreTrainedTokenizerFast, name, None) for name in names)
    return getattr(tokenizer, "backend_tokenizer", None) is not None and not own


class _FastEncoder:
    """A tokenizer of the `tokenizers` library."""

    def __init__(self, backend: Any, guarded: dict[str, int]) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = False
        self._backend = backend
        self._names = guarded
        self.guarded = frozenset(guarded.values())

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def marks(self, text: str) -> list[Mark]:
        encoding = self._backend.encode(text, add_special_tokens=False)
        pairs = zip(encoding.offsets, encoding.ids, strict=True)
        return [Mark(start, end, token) for (start, end), token in pairs if token in self.guarded]

    def literal(self, pieces: Sequence[str], tokens: Sequence[int]) -> list[int]:
        renamed, names = self._renamed
        text = "".join(piece + name for piece, name in zip(pieces, [*map(names.__getitem__, tokens), ""], strict=True))
        return renamed.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]

    @cached_property
    def _renamed(self) -> tuple[Any, dict[int, str]]:
        """The same tokenizer with unguessable names for the guarded tokens, and these names by id.

        `encode_special_tokens` would not do: it spares added tokens that are not special, and lets a vocabulary that holds
        the names of special tokens (Unigram ones do) find them in plain text.
        """
        from tokenizers import Tokenizer

        key = secrets.token_hex(16)
        names = {text: f"{key}.{number}." for text, number in self._names.items()}
        state: dict[str, Any] = json.loads(self._backend.to_str())
        state["post_processor"] = None  # it adds tokens and names them; nothing is added here
        for added in state["added_tokens"]:
            added["content"] = names.get(added["content"], added["content"])
        _rename_in_model(state["model"], names)
        return Tokenizer.from_str(json.dumps(state)), {self._names[text]: name for text, name in names.items()}


def _rename_in_model(model: dict[str, Any], names: dict[str, str]) -> None:
    vocabulary: Any = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {names.get(text, text): number for text, number in vocabulary.items()}
    else:
        model["vocab"] = [[names.get(text, text), score] for text, score in vocabulary]
    if model.get("merges"):
        model["merges"] = [merge for merge in model["merges"] if _merged(merge) not in names]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]


def _merged(merge: str | list[str]) -> str:
    return merge.replace(" ", "") if isinstance(merge, str) else "".join(merge)


class _SlowEncoder:
    """A tokenizer in Python, as some models bring along."""

    def __init__(self, tokenizer: Any, guarded: dict[str, int]) -> None:
        self._tokenizer = tokenizer
        self._names = guarded
        self._any_name = re.compile("|".join(map(re.escape, sorted(guarded, key=len, reverse=True))) or r"(?!)")
        self.guarded = frozenset(guarded.values())

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(self._tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]

    def marks(self, text: str) -> list[Mark]:
        return [Mark(*match.span(), self._names[match.group()]) for match in self._any_name.finditer(text)]

    def literal(self, pieces: Sequence[str], tokens: Sequence[int]) -> list[int]:
        ids = self._plain(pieces[0])
        for token, piece in zip(tokens, pieces[1:], strict=True):
            ids += [token, *self._plain(piece)]
        return ids

    def _plain(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]) if text else []
