import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, DataError
from reward_loop.runs.fields import (
    FieldMap,
    data_source_of,
    extra_info_of,
    look_up,
    message_text,
    prompt_of,
    response_of,
    reward_model_of,
)

VERL_ROW: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "1+1?"}],
    "response": "2",
    "data_source": "openai/gsm8k",
    "reward_model": {"ground_truth": "2", "style": "rule"},
    "extra_info": {"index": 0},
    "uid": "a",
}


def detect(row: dict[str, Any], **chosen: str) -> FieldMap:
    return FieldMap.detect(list(row), [row], **chosen)


def test_the_fields_of_a_verl_rollout_are_found() -> None:
    assert detect(VERL_ROW) == FieldMap(
        response="response",
        data_source="data_source",
        ground_truth="reward_model.ground_truth",
        prompt="prompt",
        extra_info="extra_info",
        uid="uid",
    )


@pytest.mark.parametrize("name", ["response", "responses", "completion", "solution_str", "output", "generated_text"])
def test_a_response_is_found_by_each_conventional_name(name: str) -> None:
    assert detect({name: "2", "source": "s"}).response == name


def test_the_first_conventional_name_wins_whatever_the_order_in_the_file() -> None:
    assert detect({"output": "b", "response": "a", "source": "s"}).response == "response"


def test_a_given_name_wins_over_a_conventional_one() -> None:
    assert detect({"response": "a", "final": "b", "source": "s"}, response="final").response == "final"


def test_a_field_serves_one_role_unless_it_is_named_for_two() -> None:
    row = {"solution": "2", "source": "s"}
    assert detect(row, response="solution").ground_truth is None
    assert detect(row, response="solution", ground_truth="solution").ground_truth == "solution"


def test_a_name_given_to_another_role_is_not_taken_as_the_response() -> None:
    row = {"output": "gold", "generated_text": "2", "source": "s"}
    assert detect(row, ground_truth="output").response == "generated_text"


def test_one_data_source_can_stand_for_all_rows() -> None:
    fields = detect({"response": "2", "data_source": "ignored"}, constant_data_source="mine")
    assert (fields.data_source, data_source_of({"response": "2"}, fields)) == (None, "mine")


def test_two_ways_to_say_the_data_source_contradict() -> None:
    with pytest.raises(ConfigError, match="keep one"):
        detect({"response": "2", "source": "s"}, data_source="source", constant_data_source="mine")


def test_a_given_field_that_does_not_exist_names_the_nearest_ones() -> None:
    with pytest.raises(DataError, match=r"--ground-truth-field=reward_model\.truth.*'reward_model\.ground_truth'"):
        detect(VERL_ROW, ground_truth="reward_model.truth")


def test_without_a_response_and_a_data_source_the_flags_and_the_fields_are_named() -> None:
    with pytest.raises(DataError) as caught:
        detect({"text": "2", "label": 1})
    for part in ("--response-field", "--data-source-field", "--data-source", "text, label"):
        assert part in str(caught.value)


def test_names_alone_are_enough_for_top_level_fields() -> None:
    assert FieldMap.detect(["output", "dataset"]) == FieldMap(response="output", data_source="dataset")


def test_a_name_with_dots_in_it_comes_before_a_path() -> None:
    assert look_up({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert look_up({"a": {"b": 2}}, "a.b") == 2
    assert look_up({"a": 3}, "a.b") is None


def test_a_map_survives_json() -> None:
    fields = detect(VERL_ROW)
    assert FieldMap.from_dict(json.loads(json.dumps(fields.as_dict()))) == fields


@pytest.mark.parametrize("plain", [{"response": "r", "reply": "x"}, {"data_source": "d"}, {"response": None}])
def test_a_dict_that_is_no_field_map_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        FieldMap.from_dict(plain)


def test_a_map_knows_the_columns_that_it_reads() -> None:
    assert detect(VERL_ROW).columns(["other", "reward_model", "uid"]) == ["reward_model", "uid"]


@given(st.text())
def test_a_text_response_is_graded_as_it_is(text: str) -> None:
    assert response_of({"r": text}, FieldMap("r")) == text


def test_of_chat_messages_the_last_one_of_the_assistant_is_graded() -> None:
    chat = [
        {"role": "assistant", "content": "first"},
        {"role": "assistant", "content": [{"type": "text", "text": "A: "}, {"type": "text", "text": "2"}]},
        {"role": "tool", "content": "log"},
    ]
    assert response_of({"r": chat}, FieldMap("r")) == "A: 2"


def test_the_parts_of_a_message_that_are_no_text_are_passed_over() -> None:
    assert message_text([{"type": "image", "text": None}, {"type": "text", "text": "x"}]) == "x"
    assert message_text(None) == ""


@pytest.mark.parametrize("ids", [[1, 2], np.array([1, 2])])
def test_token_ids_stay_token_ids(ids: Any) -> None:
    row = {"response": ids, "source": "s"}
    assert response_of(row, detect(row)) == [1, 2]


@pytest.mark.parametrize(("kind", "empty"), [("text", ""), ("ids", [])])
def test_an_empty_list_is_an_empty_response_in_any_file(kind: Any, empty: object) -> None:
    assert response_of({"r": []}, FieldMap("r", response_kind=kind)) == empty


@pytest.mark.parametrize("value", [None, 3, True, {"content": "x"}, [1.5], [True], [{"content": "x"}], ["a"]])
def test_a_response_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="field 'r' holds"):
        response_of({"r": value}, FieldMap("r"))


def test_a_chat_without_an_assistant_has_no_response() -> None:
    with pytest.raises(DataError, match="none of the assistant"):
        response_of({"r": [{"role": "user", "content": "hi"}]}, FieldMap("r"))


def test_text_in_a_file_of_token_ids_is_refused() -> None:
    with pytest.raises(DataError, match="holds text, but the first rows of the file hold token ids"):
        response_of({"r": "two"}, FieldMap("r", response_kind="ids"))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ([{"role": "system", "content": "be brief"}], [{"role": "system", "content": "be brief"}]),
        ([5, 6], [5, 6]),
        ([], None),
        (None, None),
    ],
)
def test_a_prompt_becomes_chat_messages_unless_it_is_token_ids(prompt: object, expected: object) -> None:
    assert prompt_of({"p": prompt}, FieldMap("r", prompt="p")) == expected


def test_a_prompt_of_another_type_is_refused() -> None:
    with pytest.raises(DataError, match="field 'p' holds int 3"):
        prompt_of({"p": 3}, FieldMap("r", prompt="p"))


def test_the_own_reward_model_of_a_row_is_kept_whole() -> None:
    assert reward_model_of(VERL_ROW, detect(VERL_ROW)) == {"ground_truth": "2", "style": "rule"}


def test_a_ground_truth_from_elsewhere_is_wrapped() -> None:
    assert reward_model_of({"answer": "2"}, FieldMap("r", ground_truth="answer")) == {"ground_truth": "2"}
    assert reward_model_of({}, FieldMap("r")) == {"ground_truth": None}


def test_extra_info_is_an_object_or_nothing() -> None:
    fields = FieldMap("r", extra_info="e")
    assert extra_info_of({"e": None}, fields) == {}
    with pytest.raises(DataError, match="extra info is an object"):
        extra_info_of({"e": "text"}, fields)


@pytest.mark.parametrize("value", [None, 3])
def test_a_data_source_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(DataError, match="a data source is text"):
        data_source_of({"d": value}, FieldMap("r", data_source="d"))
