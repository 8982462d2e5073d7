"""What a reward function sees of a rollout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reward_loop.data import DataProto
from reward_loop.data.decode import Decoder
from reward_loop.data.sample import Sample, SampleReader
from reward_loop.errors import DataError
from tests.fakes import text_batch, tiny_tokenizer, token_batch


def reader(data: DataProto, *required: str) -> SampleReader:
    return SampleReader(data, Decoder(tiny_tokenizer()), required)


def sample(data: DataProto, row: int = 0) -> Sample:
    read = reader(data).read([row])[0]
    assert isinstance(read, Sample)
    return read


def error(data: DataProto, row: int = 0) -> str:
    read = reader(data).read([row])[0]
    assert isinstance(read, DataError)
    return str(read)


CHAT = [{"role": "user", "content": "What is 6*7?"}]


def test_a_rollout_of_token_ids_is_read_whole() -> None:
    data = token_batch(["x", "It is 42."], raw_prompt=[CHAT, CHAT])
    read = sample(data, 1)
    ids = [*tiny_tokenizer()("It is 42.")["input_ids"], tiny_tokenizer().eos_token_id]
    assert read == Sample(
        data_source="fake",
        solution_str="It is 42.",
        ground_truth="truth 1",
        extra_info={"row": 1, "num_turns": None, "rollout_reward_scores": {}},
        response_tokens=len(ids),
        tokens=None,
        raw_prompt=CHAT,
    )
    assert read.response_ids == ids


def test_a_rollout_of_text_has_no_token_count() -> None:
    read = sample(text_batch(["It is 42."]))
    assert (read.solution_str, read.response_tokens, read.response_ids) == ("It is 42.", None, None)


def test_padding_is_not_part_of_the_response() -> None:
    assert sample(token_batch(["42"], width=20)) == sample(token_batch(["42"]))


def test_the_text_column_wins_over_the_token_ids() -> None:
    assert sample(token_batch(["42"], solution_str=["forty-two"])).solution_str == "forty-two"


def test_tool_fields_turns_and_rollout_rewards_reach_the_extra_info() -> None:
    data = text_batch(
        ["42"],
        tool_extra_fields=[{"row": "tool's", "calls": 2}],
        __num_turns__=np.array([3]),
        reward_scores=[{"tool": 0.5}],
    )
    assert sample(data).extra_info == {"row": "tool's", "calls": 2, "num_turns": 3, "rollout_reward_scores": {"tool": 0.5}}


def test_missing_columns_are_none() -> None:
    read = sample(text_batch(["42"], data_source=None, reward_model=None, extra_info=None))
    assert (read.data_source, read.ground_truth, read.raw_prompt) == (None, None, None)
    assert read.extra_info == {"num_turns": None, "rollout_reward_scores": {}}


def test_missing_cells_are_none() -> None:
    read = sample(text_batch(["42"], reward_model=[None], extra_info=[None], tool_extra_fields=[None], reward_scores=[None]))
    assert (read.ground_truth, read.extra_info) == (None, {"num_turns": None, "rollout_reward_scores": {}})


def test_a_reward_model_without_ground_truth_gives_none() -> None:
    assert sample(text_batch(["42"], reward_model=[{"style": "rule"}])).ground_truth is None


def test_whatever_a_function_writes_to_never_shows_in_the_batch() -> None:
    columns: dict[str, Any] = {
        "extra_info": [{"nested": {"list": [1]}}],
        "reward_model": [{"ground_truth": ["a"]}],
        "tool_extra_fields": [{"calls": [1]}],
        "reward_scores": [{"tool": [0.5]}],
        "raw_prompt": [copy.deepcopy(CHAT)],
    }
    before = copy.deepcopy(columns)
    read = sample(text_batch(["42"], **columns))
    read.extra_info["nested"]["list"].append(2)
    read.extra_info["calls"].append(2)
    read.extra_info["rollout_reward_scores"]["tool"].clear()
    read.extra_info["mine"] = 1
    read.ground_truth.append("b")
    assert read.raw_prompt is not None
    read.raw_prompt.append({"role": "assistant", "content": "42"})
    read.raw_prompt[0]["content"] = "changed"
    assert columns == before


def test_rows_are_read_in_the_order_that_is_asked_for() -> None:
    read = reader(token_batch(["a", "b", "c"])).read([2, 0])
    assert [r.solution_str for r in read if isinstance(r, Sample)] == ["c", "a"]


def test_no_rows_are_no_samples() -> None:
    assert reader(token_batch(["a"])).read([]) == []


def test_response_ids_are_a_list_of_the_callers_own() -> None:
    data = token_batch(["42"])
    before = data.batch["responses"].clone() if data.batch is not None else None
    ids = sample(data).response_ids
    assert ids is not None
    ids[0] = -1
    assert data.batch is not None
    assert data.batch["responses"].equal(before)


@pytest.mark.parametrize("batch", [text_batch, token_batch])
def test_rows_without_a_response_are_told(batch: Callable[..., DataProto]) -> None:
    read = reader(batch(["42", ""]))
    assert (read.any_empty, read.is_empty(0), read.is_empty(1)) == (True, False, True)
    assert not reader(batch(["42"])).any_empty


@pytest.mark.parametrize("name", ["extra_info", "reward_model", "tool_extra_fields"])
def test_a_cell_that_is_no_dict_costs_its_own_row(name: str) -> None:
    data = text_batch(["a", "b"], **{name: [float("nan"), {}]})
    assert error(data, 0).startswith(f"{name} must be a dict")
    assert sample(data, 1).solution_str == "b"


@pytest.mark.parametrize(
    ("argument", "column"),
    [("ground_truth", "reward_model"), ("ground_truths", "reward_model"), ("data_source", "data_source"), ("raw_prompt",) * 2],
)
def test_a_required_column_must_be_there(argument: str, column: str) -> None:
    data = text_batch(["42"], data_source=None, reward_model=None)
    with pytest.raises(DataError, match=rf"needs {argument}, but the batch has no column '{column}' \(it has \['extra_info'"):
        reader(data, argument)


def test_what_every_sample_has_needs_no_column() -> None:
    data = text_batch(["42"], data_source=None, reward_model=None, extra_info=None)
    assert reader(data, "solution_str", "extra_info", "response_ids").read([0])


def test_a_batch_needs_token_ids_or_text() -> None:
    data = DataProto.from_dict(non_tensors={"text": ["42"]})
    with pytest.raises(DataError, match=r"tensor 'responses' .* or the column 'solution_str' .* columns \['text'\]"):
        reader(data)


def test_the_text_column_must_hold_text() -> None:
    with pytest.raises(DataError, match=r"solution_str must hold text; row 1 holds None"):
        reader(text_batch(["a", "b"], solution_str=["42", None]))
