from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.data import DataProto, response_lengths
from reward_loop.errors import DataError


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


def left_padded(sizes: list[tuple[int, int]], prompt_width: int, response_width: int) -> DataProto:
    """A batch of (prompt, response) sizes with the mask aligned as the contract says."""
    mask = zeros(len(sizes), prompt_width + response_width)
    for row, (prompt, response) in enumerate(sizes):
        mask[row, prompt_width - prompt : prompt_width + response] = 1
    prompts, responses = zeros(len(sizes), prompt_width), zeros(len(sizes), response_width)
    return DataProto.from_dict({"prompts": prompts, "responses": responses, "attention_mask": mask})


def padded_independently(sizes: list[tuple[int, int]]) -> DataProto:
    """A trajectory's outputs as verl's agent loop pads them: each field alone, on the right."""
    mask = zeros(len(sizes), max(prompt + response for prompt, response in sizes))
    for row, (prompt, response) in enumerate(sizes):
        mask[row, : prompt + response] = 1
    prompts = zeros(len(sizes), max(prompt for prompt, _ in sizes))
    responses = zeros(len(sizes), max(response for _, response in sizes))
    return DataProto.from_dict({"prompts": prompts, "responses": responses, "attention_mask": mask})


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=6))
def test_the_mask_of_a_left_padded_prompt_and_a_right_padded_response_gives_the_lengths(
    sizes: list[tuple[int, int]],
) -> None:
    data = left_padded(sizes, 4, 5)
    expected = [response for _, response in sizes]
    lengths = response_lengths(data)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == expected
    data.pop(["prompts"])
    assert response_lengths(data).tolist() == expected


@pytest.mark.parametrize("sizes", [[(10, 5), (3, 4)], [(2, 8), (8, 3)], [(600, 200), (100, 150)]])
def test_outputs_padded_independently_need_response_len(sizes: list[tuple[int, int]]) -> None:
    data = padded_independently(sizes)
    with pytest.raises(DataError, match="as response_len"):
        response_lengths(data)
    true_lengths = [response for _, response in sizes]
    data.non_tensor_batch["response_len"] = np.array(true_lengths, dtype=object)
    assert response_lengths(data).tolist() == true_lengths
    assert response_lengths(data[-1:]).tolist() == true_lengths[-1:]


def test_a_misaligned_mask_is_told_by_its_row() -> None:
    with pytest.raises(DataError, match="attention_mask of row 1 ends its prompt part with padding"):
        response_lengths(padded_independently([(10, 5), (3, 4)]))


def test_a_boolean_mask_will_do() -> None:
    data = left_padded([(1, 2), (2, 1)], 2, 2)
    assert data.batch is not None
    data.batch["attention_mask"] = data.batch["attention_mask"].bool()
    assert response_lengths(data).tolist() == [2, 1]


def test_without_mask_and_lengths_responses_are_full() -> None:
    assert response_lengths(DataProto.from_dict({"responses": zeros(2, 3)})).tolist() == [3, 3]


def test_response_len_may_be_a_tensor() -> None:
    data = DataProto.from_dict({"responses": zeros(2, 3), "response_len": torch.tensor([0, 3], dtype=torch.int32)})
    assert response_lengths(data).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("given_lengths", "message"),
    [
        ([1, 4], "response_len of row 1 is 4, but responses are 0 to 3 tokens long"),
        ([-1, 1], "response_len of row 0 is -1"),
        ([1, None], r"one integer per row; it is \[1, None\]"),
        ([1, 1.5], "one integer per row"),
        ([True, False], "one integer per row"),
        (["1", "2"], "one integer per row"),
    ],
)
def test_a_response_len_that_cannot_be_is_refused(given_lengths: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        response_lengths(DataProto.from_dict({"responses": zeros(2, 3)}, {"response_len": given_lengths}))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"other": zeros(1, 2)}, r"no tensor 'responses'; it has \['other'\]"),
        ({"responses": zeros(2)}, r"responses must be \[rows, tokens\]; its shape is \[2\]"),
        ({"responses": torch.zeros(1, 2)}, "responses must hold integers; its dtype is torch.float32"),
        ({"responses": zeros(1, 2), "attention_mask": torch.ones(1, 2)}, "attention_mask must hold integers"),
        ({"responses": zeros(1, 2), "attention_mask": zeros(1)}, r"attention_mask must be \[rows, tokens\]"),
        ({"responses": zeros(1, 2), "attention_mask": zeros(1, 1)}, "has 1 columns, prompts and responses 2"),
        (
            {"prompts": zeros(1, 2), "responses": zeros(1, 2), "attention_mask": zeros(1, 5)},
            r"has 5 columns, prompts and responses 2 \+ 2",
        ),
        ({"responses": zeros(1, 2), "attention_mask": torch.tensor([[1, 2]])}, "row 0 holds values other than 0 and 1"),
        ({"responses": zeros(1, 3), "attention_mask": torch.tensor([[1, 0, 1]])}, "row 0 has a 1 after a 0"),
    ],
)
def test_tensors_that_give_no_lengths_are_refused(tensors: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(DataError, match=message):
        response_lengths(DataProto.from_dict(tensors))


def test_a_ragged_mask_is_refused() -> None:
    with pytest.raises(DataError, match="non-tensor column"):
        response_lengths(DataProto.from_dict({"responses": zeros(2, 3)}, {"attention_mask": [[1, 1], [1]]}))
