from __future__ import annotations

import pytest
import torch

from reward_loop import DataProto
from reward_loop.errors import RewardTimeout, Unscorable
from reward_loop.loop.assemble import assemble
from reward_loop.outcome import BatchFailed, ErrorPolicy, Outcome, Reward
from tests.fakes import text_batch
from tests.results import rows

RAISE, MASK, VALUE = ErrorPolicy(), ErrorPolicy("mask"), ErrorPolicy("value", -2.0)
LATE = Outcome.from_error(RewardTimeout("too late"), 1.0)
BROKEN = Outcome.from_error(KeyError("x"), 0.0)
EMPTY = Outcome.from_error(Unscorable("empty"), 0.0)


def ok(value: float, **extra: object) -> Outcome:
    return Outcome("ok", Reward(value, extra))


def per_token(*rewards: float) -> Outcome:
    return Outcome("ok", Reward(sum(rewards), {}, rewards))


def tokens(*lengths: int, width: int = 4) -> DataProto:
    responses = torch.zeros(len(lengths), width, dtype=torch.int64)
    return DataProto.from_dict({"responses": responses}, {"response_len": list(lengths)})


def scores(data: DataProto, *outcomes: Outcome, policy: ErrorPolicy = MASK) -> list[list[float]]:
    return rows(assemble(data, outcomes, policy), "rm_scores")


def test_scores_and_mask_are_float32() -> None:
    result = assemble(tokens(1, 2), [ok(1.0), EMPTY], MASK)
    found = {name: tensor.dtype for name in result.tensor_names() if (tensor := result.tensor(name)) is not None}
    assert found == {"rm_scores": torch.float32, "reward_mask": torch.float32}


def test_a_reward_stands_at_the_last_valid_token() -> None:
    assert scores(tokens(1, 3, 4), ok(1.0), ok(2.0), ok(3.0)) == [[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3]]


def test_per_token_rewards_stand_at_every_valid_token() -> None:
    assert scores(tokens(3, 2), per_token(1.0, 2.0, 3.0), ok(5.0)) == [[1, 2, 3, 0], [0, 5, 0, 0]]


def test_an_empty_response_has_no_token_for_a_reward() -> None:
    assert scores(tokens(0, 2), EMPTY, ok(1.0)) == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert scores(tokens(0, width=0), EMPTY) == [[]]


def test_texts_have_one_column_and_per_token_rewards_are_summed_into_it() -> None:
    assert scores(text_batch(["a", "b"]), ok(1.5), per_token(0.5, 0.25)) == [[1.5], [0.75]]


def test_a_batch_without_rows_gives_one_without_rows() -> None:
    assert scores(text_batch([])) == []


def test_a_failed_sample_scores_nothing_or_the_users_value_and_the_mask_says_which() -> None:
    outcomes = [ok(1.0), BROKEN, LATE, EMPTY]
    masked = assemble(tokens(2, 2, 2, 2), outcomes, MASK)
    valued = assemble(tokens(2, 2, 2, 2), outcomes, VALUE)
    assert rows(masked, "reward_mask") == [1, 0, 0, 0]
    assert [sum(row) for row in rows(masked, "rm_scores")] == [1, 0, 0, 0]
    assert rows(valued, "reward_mask") == [1, 1, 1, 0]
    assert [sum(row) for row in rows(valued, "rm_scores")] == [1, -2, -2, 0]


def test_columns_are_the_union_of_all_samples_keys_and_none_where_one_has_no_value() -> None:
    result = assemble(tokens(1, 1, 1), [ok(1.0, a=1), BROKEN, ok(0.0, b=[2, 3])], MASK)
    columns = {name: column.tolist() for name, column in result.non_tensor_batch.items()}
    assert columns == {
        "a": [1, None, None],
        "b": [None, None, [2, 3]],
        "reward_status": ["ok", "error", "ok"],
        "reward_message": ["", "KeyError: 'x'", ""],
    }
    assert result.meta_info == {"reward_extra_keys": ["a", "b", "reward_status", "reward_message"]}


def test_by_default_a_failure_raises_and_names_the_rows_and_their_uids() -> None:
    data = text_batch(["a", "b", "c"], uid=["p-7", "p-8", "p-9"])
    with pytest.raises(BatchFailed) as failure:
        assemble(data, [ok(1.0), BROKEN, LATE], RAISE)
    assert "2 of 3 samples failed" in str(failure.value)
    assert "sample 1 (uid p-8): error: KeyError: 'x'" in str(failure.value)
    assert "sample 2 (uid p-9): timeout: RewardTimeout: too late" in str(failure.value)
    assert failure.value.outcomes == [ok(1.0), BROKEN, LATE]


def test_unscorable_samples_never_raise() -> None:
    assert scores(text_batch(["a", "b"]), ok(1.0), EMPTY, policy=RAISE) == [[1], [0]]
