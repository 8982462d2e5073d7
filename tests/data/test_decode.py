"""From token ids to text, the fast way and the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from reward_loop.data.columns import Column
from reward_loop.data.decode import Decoder
from reward_loop.errors import ConfigError
from tests.fakes import EOS, tiny_tokenizer

decoder = Decoder(tiny_tokenizer())
ids = st.lists(st.integers(0, len(tiny_tokenizer()) - 1), max_size=30)


def arrays(*rows: list[int]) -> list[Column]:
    return [np.array(row, np.int64) for row in rows]


class Shouting(PreTrainedTokenizerFast):
    """A tokenizer with a `decode` of its own."""

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        return str(super().decode(token_ids, skip_special_tokens=skip_special_tokens)).upper()


class Slow:
    """A tokenizer without a backend in Rust."""

    def decode(self, row: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, row if not skip_special_tokens else (i for i in row if i)))


@given(st.lists(ids, max_size=5))
def test_the_text_is_what_the_tokenizer_decodes(rows: list[list[int]]) -> None:
    tokenizer = tiny_tokenizer()
    assert Decoder(tokenizer)(arrays(*rows)) == [tokenizer.decode(row, skip_special_tokens=True) for row in rows]


@given(st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = tiny_tokenizer()
    assert Decoder(tokenizer)(arrays(tokenizer(text)["input_ids"])) == [text]


def test_special_tokens_are_left_out() -> None:
    tokenizer = tiny_tokenizer()
    row: list[Any] = [*tokenizer("42")["input_ids"], tokenizer.eos_token_id]
    assert str(tokenizer.decode(row)).endswith(EOS)
    assert Decoder(tokenizer)(arrays(row)) == ["42"]


def test_a_tokenizer_with_its_own_decode_is_asked() -> None:
    untyped: Any = Shouting
    tokenizer = untyped(tokenizer_object=tiny_tokenizer().backend_tokenizer, clean_up_tokenization_spaces=False)
    assert Decoder(tokenizer)(arrays(tokenizer("the answer")["input_ids"])) == ["THE ANSWER"]


def test_spaces_are_cleaned_up_where_the_tokenizer_does_so() -> None:
    untyped: Any = PreTrainedTokenizerFast
    tokenizer = untyped(tokenizer_object=tiny_tokenizer().backend_tokenizer, clean_up_tokenization_spaces=True)
    row = tokenizer("Well , yes .")["input_ids"]
    assert Decoder(tokenizer)(arrays(row)) == [tokenizer.decode(row, skip_special_tokens=True)]


def test_a_slow_tokenizer_decodes_row_by_row() -> None:
    assert Decoder(Slow())(arrays([1, 0, 2], [])) == ["1 2", ""]


def test_without_a_tokenizer_the_error_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer to decode them: set actor_rollout_ref\.model\.path"):
        Decoder(None)(arrays([1]))
