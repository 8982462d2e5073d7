from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from reward_loop.errors import DataError
from reward_loop.functions.conversation import conversation

USER = {"role": "user", "content": "Why?"}


def test_the_response_is_the_assistants_turn_after_the_prompt() -> None:
    prompt = [{"role": "system", "content": "Be brief."}, USER]
    assert conversation(prompt, ["Because."]).messages == [*prompt, {"role": "assistant", "content": "Because."}]


def test_each_step_is_followed_by_the_tag() -> None:
    assert conversation([USER], ["one", "two"], "<t>").messages[-1]["content"] == "one<t>two<t>"


def test_parts_of_text_are_the_text_that_they_are_together() -> None:
    parts = [{"type": "text", "text": "Why"}, "?"]
    assert conversation([{"role": "user", "content": parts}], [""]).messages[0] == USER


def test_an_array_of_messages_is_a_list_of_them() -> None:
    assert conversation(np.array([USER], dtype=object), [""]).messages[0] == USER


def test_what_else_a_message_holds_is_kept() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert conversation([USER, call], [""]).messages[1] == call


def test_the_prompt_is_not_written_to() -> None:
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    before = copy.deepcopy(prompt)
    conversation(prompt, ["x"]).with_texts(str.upper)
    assert prompt == before


@pytest.mark.parametrize(
    ("raw_prompt", "said"),
    [
        (None, "the column 'raw_prompt'"),
        ("Why?", "list of at least one chat message; it is 'Why\\?'"),
        ([], "at least one chat message"),
        (["Why?"], r"raw_prompt\[0\] must be a message"),
        ([USER, {"content": "x"}], r"raw_prompt\[1\] must be a message"),
        ([{"role": "user"}], "must be a message"),
        ([{"role": "user", "content": 7}], "must be text; it is 7"),
        ([{"role": "user", "content": [{"type": "image", "image": "x.png"}]}], r"raw_prompt\[0\] holds a part of type 'image'"),
        ([{"role": "user", "content": [3]}], "part of type 'int'"),
    ],
)
def test_a_prompt_that_is_no_conversation_of_text_is_an_error_that_shows_it(raw_prompt: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        conversation(raw_prompt, ["x"])
