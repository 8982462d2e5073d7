"""The body of a POST /score."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.score_request import MAX_INPUTS, ScoreRequest, parsed

texts = st.text(min_size=1)
token_ids = st.lists(st.integers(), min_size=1)


def refusal(body: dict[str, Any]) -> Refusal:
    """Return why this body is refused."""
    with pytest.raises(Refusal) as caught:
        parsed(body)
    assert caught.value.status == 400
    return caught.value


@given(texts)
def test_one_text_is_one_input(text: str) -> None:
    assert parsed({"input": text}) == ScoreRequest([text])


@given(token_ids)
def test_a_list_of_token_ids_is_one_input(ids: list[int]) -> None:
    assert parsed({"input": ids}) == ScoreRequest([ids])


@given(st.one_of(st.lists(texts, min_size=1), st.lists(token_ids, min_size=1)))
def test_a_list_keeps_its_inputs_in_order(inputs: list[Any]) -> None:
    assert parsed({"input": inputs}).inputs == inputs


def test_the_other_fields_are_taken_and_the_pooling_in_any_case() -> None:
    body = {"input": "a", "model": "m", "pooling_type": "mean", "n_labels": 3, "normalize": False}
    assert parsed(body) == ScoreRequest(["a"], "m", "MEAN", 3, normalize=False)


@pytest.mark.parametrize("nothing", [None, "", [], {}, 1, 1.5, [1.5], [None], [{}], [True]])
def test_an_input_of_another_form_is_refused(nothing: object) -> None:
    refusal({"input": nothing})


def test_a_body_without_input_is_refused_with_what_it_takes() -> None:
    assert "['prompt'], but no input" in str(refusal({"prompt": "a"}))


@given(st.lists(st.one_of(st.just(""), texts), min_size=2).filter(lambda inputs: "" in inputs))
def test_every_empty_input_is_named(inputs: list[str]) -> None:
    empty = [at for at, one in enumerate(inputs) if not one]
    refused = refusal({"input": inputs})
    assert list(refused.bad_inputs) == empty
    assert refused.reply().content["error"]["index"] == empty[0]


def test_an_input_of_another_kind_than_the_first_is_named() -> None:
    assert list(refusal({"input": ["a", [1], "b", 2]}).bad_inputs) == [1, 3]
    assert list(refusal({"input": [[1], "a", [1, "b"], [True]]}).bad_inputs) == [1, 2, 3]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 1),
        ("n_labels", 0),
        ("n_labels", "1"),
        ("n_labels", True),
        ("normalize", 1),
        ("pooling_type", "max"),
        ("pooling", "LAST"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(field: str, value: object) -> None:
    message = str(refusal({"input": "a", field: value}))
    assert field in message
    assert repr(value) in message or "unknown" in message


def test_too_many_inputs_are_refused_with_the_limit() -> None:
    assert str(MAX_INPUTS) in str(refusal({"input": ["a"] * (MAX_INPUTS + 1)}))
