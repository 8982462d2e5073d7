"""Preferences become the token ids that a server would make of them."""

from __future__ import annotations

import pytest

from recipes import tiny_models
from reward_loop.errors import DataError
from reward_loop.training.encoding import EncodedPair, encode_preferences
from reward_loop.training.preferences import Preference
from tests.fakes import tiny_tokenizer

USER = {"role": "user", "content": "hi"}


def test_token_ids_need_no_tokenizer() -> None:
    given = [Preference((1, 2), (3,), (4, 5), margin=0.5, label=1)]
    assert encode_preferences(given) == [EncodedPair((1, 2, 3), (1, 2, 4, 5), 0.5, 1)]


def test_text_is_encoded_in_one_piece_as_a_server_does() -> None:
    tokenizer = tiny_tokenizer()
    [pair] = encode_preferences([Preference("Let me thi", "nk: 42", "nk")], tokenizer)
    assert list(pair.chosen) == tokenizer("Let me think: 42")["input_ids"]
    assert list(pair.rejected) == tokenizer("Let me think")["input_ids"]


def test_messages_are_encoded_by_the_chat_template() -> None:
    tokenizer = tiny_models.tokenizer()
    whole = [
        Preference((), ({**USER}, {"role": "assistant", "content": "yes"}), ({**USER}, {"role": "assistant", "content": "no"}))
    ]
    turns = [Preference((USER,), "yes", "no")]
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"
    [pair] = encode_preferences(turns, tokenizer)
    assert list(pair.chosen) == tokenizer(text)["input_ids"]
    assert encode_preferences(whole, tokenizer) == [pair]


def test_what_can_not_be_encoded_says_which_pair_and_why() -> None:
    fine = Preference((1,), (2,), (3,))
    with pytest.raises(DataError, match=r"sample preferences\[1\]: the preference is text: pass the tokenizer"):
        encode_preferences([fine, Preference("a", "b", "c")])
    with pytest.raises(DataError, match="has no chat_template"):
        encode_preferences([Preference((USER,), "yes", "no")], tiny_tokenizer())
    with pytest.raises(DataError, match="no token at all"):
        encode_preferences([Preference((), (1,), ())])
    with pytest.raises(DataError, match="chosen and rejected are the same"):
        encode_preferences([Preference((1,), (2,), (2,))])


def test_long_pairs_are_an_error_or_dropped_or_cut_as_told() -> None:
    given = [Preference((), (1, 2, 3, 4), (5, 6)), Preference((), (7,), (8,))]
    with pytest.raises(
        DataError, match=r"preferences\[0\]: the pair is 4 tokens, more than max_tokens=3; raise it, or set too_long"
    ):
        encode_preferences(given, max_tokens=3)
    assert encode_preferences(given, max_tokens=3, too_long="drop") == [EncodedPair((7,), (8,))]
    assert encode_preferences(given, max_tokens=3, too_long="truncate_left")[0] == EncodedPair((2, 3, 4), (5, 6))
    with pytest.raises(DataError, match="after its beginning was cut off"):
        encode_preferences([Preference((), (1, 2, 3), (9, 2, 3))], max_tokens=2, too_long="truncate_left")
