from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from recipes.tiny_models import tokenizer as qwen
from reward_loop.errors import DataError
from reward_loop.functions.step_ends import end_tokens
from tests.functions.reward_tokenizers import mistral

TEXTS = st.text("ab 42.\n\u00fc\u00df\U0001f98a\u200d\u4e03\U0001f469\U0001f3fd", min_size=1, max_size=30)


@functools.cache
def tokenizer(kind: str) -> Any:
    python: Any = ByT5Tokenizer  # untyped
    return {"bytes": qwen, "pieces": lambda: mistral("first"), "python": python}[kind]()


def decoded(kind: str, ids: list[int]) -> str:
    return str(tokenizer(kind).decode(ids, skip_special_tokens=True))


@pytest.mark.parametrize("kind", ["bytes", "python"])
@given(text=TEXTS, special=st.booleans())
@settings(deadline=None)
def test_an_offset_ends_at_the_first_token_with_which_the_text_before_it_is_there(kind: str, text: str, special: bool) -> None:
    ids = tokenizer(kind)(text, add_special_tokens=False)["input_ids"]
    if special:
        ids = [*ids, tokenizer(kind).eos_token_id]
    ends = range(1, len(text) + 1)
    expected = [next(count for count in range(len(ids)) if decoded(kind, ids[: count + 1])[:end] == text[:end]) for end in ends]
    assert end_tokens(tokenizer(kind), ids, text, ends) == expected


@given(st.lists(st.integers(0, 320), min_size=1, max_size=40))
@settings(deadline=None)
def test_any_tokens_have_their_ends_even_where_they_are_no_text(ids: list[int]) -> None:
    ids = [token % len(tokenizer("bytes")) for token in ids]
    text = decoded("bytes", ids)
    ends = list(range(1, len(text) + 1))
    found = end_tokens(tokenizer("bytes"), ids, text, ends)
    assert found == sorted(found)
    assert all(0 <= token < len(ids) for token in found)
    for end, token in zip(ends, found, strict=True):
        before = decoded("bytes", ids[:token])
        assert before[:end] != text[:end] or "\ufffd" in before


def test_a_vocabulary_of_pieces_has_its_ends_too() -> None:
    text = "six times seven\n\nis 42"
    ids = tokenizer("pieces")(text, add_special_tokens=False)["input_ids"]
    first, last = end_tokens(tokenizer("pieces"), ids, text, [text.index("\n"), len(text)])
    assert decoded("pieces", ids[: first + 1]) == "six times seven"
    assert last == len(ids) - 1


def test_a_character_of_many_tokens_ends_at_its_last() -> None:
    ids = tokenizer("bytes")("a\U0001f98ab", add_special_tokens=False)["input_ids"]
    assert len(ids) == 6
    assert end_tokens(tokenizer("bytes"), ids, "a\U0001f98ab", [1, 2, 3]) == [0, 4, 5]


def test_a_token_that_ends_a_step_and_begins_what_follows_is_its_end() -> None:
    joined = qwen()
    joined.add_tokens([".\n\n"])
    ids = joined("One.\n\nTwo", add_special_tokens=False)["input_ids"]
    [end] = end_tokens(joined, ids, "One.\n\nTwo", [4])
    assert joined.decode([ids[end]]) == ".\n\n"


@pytest.mark.parametrize("kind", ["bytes", "pieces", "python"])
def test_tokens_of_another_text_are_an_error_that_shows_the_text(kind: str) -> None:
    ids = tokenizer(kind)("six times", add_special_tokens=False)["input_ids"]
    with pytest.raises(DataError, match=r"do not read as its text 'seven'.*solution_str"):
        end_tokens(tokenizer(kind), ids, "seven", [5])
