"""Decoding by table gives what the tokenizer gives, for whatever ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reward_loop.data.byte_level import ByteTable, table_of
from reward_loop.data.columns import Column
from reward_loop.errors import DataError
from tests.fakes import tiny_tokenizer


def with_added_tokens() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of single bytes, with tokens that were added as text: special ones, plain ones, odd ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: number for number, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    tokenizer.add_tokens(["<think>", "naïve word", "日本", "Ġa b"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")  # type: ignore[no-untyped-call]


TOKENIZER = with_added_tokens()
SIZE = len(TOKENIZER)


def table(tokenizer: PreTrainedTokenizerFast) -> ByteTable:
    found = table_of(tokenizer)
    assert found is not None
    return found


@given(st.lists(st.lists(st.integers(0, SIZE + 40), max_size=30), max_size=4))
def test_any_ids_decode_as_the_tokenizer_decodes_them(rows: list[list[int]]) -> None:
    """Single bytes in any order make invalid UTF-8 of every kind; ids past the vocabulary stand for nothing."""
    expected = [TOKENIZER.decode(row, skip_special_tokens=True) for row in rows]
    assert table(TOKENIZER).decode([np.array(row, np.int64) for row in rows]) == expected


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_ids_of_any_integer_type_decode(dtype: type) -> None:
    row: Column = np.array(TOKENIZER("abc")["input_ids"]).astype(dtype)
    assert table(TOKENIZER).decode([row]) == ["abc"]


def test_a_negative_id_is_refused() -> None:
    with pytest.raises(DataError, match="-1 is no token id"):
        table(TOKENIZER).decode([np.array([3, -1])])


def test_other_kinds_of_tokenizers_have_no_table() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    bytewise = tiny_tokenizer().backend_tokenizer
    by_word, cleaning = (
        PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=True)  # type: ignore[no-untyped-call]
        for backend in (words, bytewise)
    )
    assert table_of(by_word) is None
    assert table_of(cleaning) is None
    assert table_of(object()) is None
