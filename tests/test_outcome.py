"""What a reward function may return, how a sample may end, and what a failed one is worth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError, DataError, InvalidReward, RewardTimeout, Unscorable, WorkerDied
from reward_loop.outcome import (
    BatchFailed,
    ErrorPolicy,
    Outcome,
    Reward,
    describe,
    finite,
    parse_result,
    parse_reward,
)

OK = Outcome("ok", Reward(0.5, {"acc": 0.5}))
FAILED = Outcome("error", None, "ValueError: boom")
LATE = Outcome("timeout", None, "not scored within 1.0 s")
UNSCORABLE = Outcome("unscorable", None, "the response is empty")

RAISE, MASK, VALUE = ErrorPolicy(), ErrorPolicy("mask"), ErrorPolicy("value", -1.0)


def raised_by(function: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
        function()
    return caught.value


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "value"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        (torch.tensor(0.5), 0.5),
        (torch.tensor(2), 2.0),
        (torch.tensor(True), 1.0),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
    ],
)
def test_a_number_of_any_kind_is_a_reward(result: object, value: float) -> None:
    reward = parse_reward(result, 3)
    assert reward == Reward(value, {"acc": value})
    assert type(reward.value) is float


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_every_number_that_float32_holds_is_kept_exactly(number: float) -> None:
    assert parse_reward(number, None).score == number


@pytest.mark.parametrize("result", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)])
def test_nan_and_infinity_are_no_rewards(result: object) -> None:
    with pytest.raises(InvalidReward, match=r"must be a finite number; got .*(nan|inf)"):
        parse_reward(result, None)


@pytest.mark.parametrize("result", [1e39, -1e39, 10**400])
def test_a_number_that_would_be_infinite_for_the_trainer_is_no_reward(result: object) -> None:
    with pytest.raises(InvalidReward, match="must be a finite number"):
        parse_reward(result, None)


@pytest.mark.parametrize("result", ["1.0", (1.0, 2.0), {1.0}, 1j, object(), MappingProxyType({"score": 1.0})])
def test_anything_else_is_no_reward(result: object) -> None:
    with pytest.raises(InvalidReward, match=r"a reward is a finite number, a dict or a list of numbers per token; got"):
        parse_reward(result, None)


def test_none_says_that_the_sample_cannot_be_judged() -> None:
    with pytest.raises(Unscorable, match="the reward function returned None"):
        parse_reward(None, None)


@pytest.mark.parametrize("number", [1, 0.5, np.float32(0.5), torch.tensor(1.5)])
def test_finite_gives_the_number_itself(number: Any) -> None:
    assert finite(number) == float(number)


# -- dicts -------------------------------------------------------------------------------------------------------------


def test_a_dict_is_its_score_and_all_of_it_is_extra_info() -> None:
    assert parse_reward({"score": 1, "pred": "42"}, None) == Reward(1.0, {"score": 1, "pred": "42"})


def test_the_function_keeps_its_dict_to_itself() -> None:
    mine = {"score": 1.0}
    parse_reward(mine, None).extra["more"] = 1
    assert mine == {"score": 1.0}


def test_a_dict_without_score_is_no_reward() -> None:
    with pytest.raises(InvalidReward, match=r"""needs the key "score"; it has \['acc', 'pred'\]"""):
        parse_reward({"acc": 1.0, "pred": "42"}, None)


def test_a_dict_whose_score_is_none_cannot_be_judged() -> None:
    with pytest.raises(Unscorable):
        parse_reward({"score": None}, None)


@pytest.mark.parametrize("key", ["reward_status", "reward_message", "reward_mask"])
def test_the_loops_own_extra_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidReward, match=rf"\['{key}'\] are the reward loop's own; rename"):
        parse_reward({"score": 1.0, key: 0}, None)
    with pytest.raises(InvalidReward, match=key):
        parse_reward({"score": [1.0], key: 0}, 1)


# -- per token ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "result",
    [
        [0.5, 0, True],
        np.array([0.5, 0.0, 1.0], np.float32),
        torch.tensor([0.5, 0.0, 1.0]),
        [torch.tensor(0.5), np.float32(0), 1],
    ],
)
def test_a_list_or_array_holds_one_reward_per_token(result: object) -> None:
    reward = parse_reward(result, 3)
    assert reward == Reward(1.5, {}, (0.5, 0.0, 1.0))
    assert reward.score == [0.5, 0.0, 1.0]


def test_a_dict_may_hold_per_token_rewards() -> None:
    assert parse_reward({"score": [1.0, 2.0], "step": "a"}, 2).tokens == (1.0, 2.0)


def test_the_list_must_be_as_long_as_the_response() -> None:
    with pytest.raises(InvalidReward, match="2 per-token rewards for 3 response tokens; take the parameter response_ids"):
        parse_reward([1.0, 2.0], 3)


def test_a_rollout_that_came_as_text_takes_a_list_of_any_length() -> None:
    assert parse_reward([1.0, 2.0], None).value == 3.0


@pytest.mark.parametrize("result", [[1.0, math.nan], [1.0, "x"], [1.0, None], [[1.0], [2.0]], np.ones((2, 2))])
def test_each_of_the_list_must_be_a_finite_number(result: object) -> None:
    with pytest.raises(InvalidReward, match="must be a finite number"):
        parse_reward(result, 2)


# -- what run_single returns -------------------------------------------------------------------------------------------


def test_a_result_of_run_single_is_a_reward() -> None:
    assert parse_result({"reward_score": 1, "reward_extra_info": {"acc": True}}, None) == Reward(1.0, {"acc": True})
    assert parse_result({"reward_score": [1.0, 2.0]}, 2).tokens == (1.0, 2.0)
    assert parse_result({"reward_score": 0.5, "reward_extra_info": None}, None) == Reward(0.5, {})


def test_a_reward_and_its_result_are_the_same() -> None:
    for reward in (Reward(0.5, {"acc": 1}), Reward(3.0, {"a": 1}, (1.0, 2.0))):
        assert parse_result(reward.as_result(), 2) == reward


@pytest.mark.parametrize("result", [None, 1.0, {"score": 1.0}, ("reward_score", 1.0)])
def test_run_single_must_keep_its_promise(result: object) -> None:
    with pytest.raises(InvalidReward, match=r"run_single must return .*; it returned"):
        parse_result(result, None)


def test_the_extra_info_of_run_single_must_be_a_dict() -> None:
    with pytest.raises(InvalidReward, match=r"reward_extra_info must be a dict; it is \['acc'\]"):
        parse_result({"reward_score": 1.0, "reward_extra_info": ["acc"]}, None)


# -- Reward ------------------------------------------------------------------------------------------------------------


def test_plus_raises_the_reward_and_adds_extra_info() -> None:
    assert Reward(1.0, {"acc": 1}).plus(-0.5, penalty=-0.5) == Reward(0.5, {"acc": 1, "penalty": -0.5})


def test_plus_raises_the_last_token_of_per_token_rewards() -> None:
    assert Reward(3.0, {}, (1.0, 2.0)).plus(-0.5) == Reward(2.5, {}, (1.0, 1.5))


def test_a_reward_that_a_manager_spoilt_is_refused() -> None:
    with pytest.raises(InvalidReward, match="must be a finite number; got nan"):
        Reward(1.0).plus(math.nan)


# -- outcomes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("boom"), "error"),
        (InvalidReward("nan"), "error"),
        (DataError("no text"), "error"),
        (WorkerDied("exit code 1"), "error"),
        (RewardTimeout("late"), "timeout"),
        (TimeoutError(), "timeout"),
        (Unscorable("empty"), "unscorable"),
    ],
)
def test_the_status_follows_from_the_error(error: Exception, status: str) -> None:
    outcome = Outcome.from_error(error, 0.25)
    assert (outcome.status, outcome.reward, outcome.seconds) == (status, None, 0.25)
    assert outcome.message.startswith(type(error).__name__)


@pytest.mark.parametrize(("outcome", "failed"), [(OK, False), (UNSCORABLE, False), (FAILED, True), (LATE, True)])
def test_an_unscorable_sample_has_not_failed(outcome: Outcome, failed: bool) -> None:
    assert outcome.failed is failed


# -- what is said about an error ---------------------------------------------------------------------------------------


def test_an_error_is_described_by_class_text_and_line() -> None:
    def compute_score() -> float:
        return 1 / 0

    error = raised_by(compute_score)
    line = compute_score.__code__.co_firstlineno + 1
    assert describe(error) == f"ZeroDivisionError: division by zero ({__file__}:{line} in compute_score)"


def test_the_line_is_the_users_where_a_library_raised() -> None:
    def compute_score() -> object:
        return json.loads("no json")

    line = compute_score.__code__.co_firstlineno + 1
    assert describe(raised_by(compute_score)).endswith(f"({__file__}:{line} in compute_score)")


def test_the_line_is_the_users_where_this_package_raised() -> None:
    def compute_score() -> object:
        return Outcome.from_error(None, 0.0)  # type: ignore[arg-type]

    line = compute_score.__code__.co_firstlineno + 1
    assert f"({__file__}:{line} in compute_score)" in describe(raised_by(compute_score))


def test_our_own_errors_need_no_line() -> None:
    def check() -> None:
        raise ConfigError("set it", "7")

    assert describe(raised_by(check)) == "ConfigError: sample 7: set it"


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert describe(KeyError("x")) == "KeyError: 'x'"
    assert describe(TimeoutError()) == "TimeoutError"


def test_a_description_is_one_line() -> None:
    assert describe(ValueError("first\n  second")) == "ValueError: first second"


# -- policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [RAISE, MASK, VALUE])
def test_a_scored_sample_keeps_its_reward_under_every_policy(policy: ErrorPolicy) -> None:
    assert policy.result(OK) == {
        "reward_score": 0.5,
        "reward_extra_info": {"acc": 0.5, "reward_status": "ok", "reward_message": "", "reward_mask": 1},
    }


@pytest.mark.parametrize("policy", [RAISE, MASK, VALUE])
def test_an_unscorable_sample_is_masked_under_every_policy(policy: ErrorPolicy) -> None:
    policy.check([UNSCORABLE], ["0"])
    assert policy.substitute("unscorable") == (0.0, False)


@pytest.mark.parametrize("outcome", [FAILED, LATE])
def test_mask_makes_a_failed_sample_count_for_nothing(outcome: Outcome) -> None:
    MASK.check([outcome], ["0"])
    assert MASK.result(outcome) == {
        "reward_score": 0.0,
        "reward_extra_info": {"reward_status": outcome.status, "reward_message": outcome.message, "reward_mask": 0},
    }


@pytest.mark.parametrize("outcome", [FAILED, LATE])
def test_value_gives_a_failed_sample_the_users_number(outcome: Outcome) -> None:
    VALUE.check([outcome], ["0"])
    result = VALUE.result(outcome)
    assert (result["reward_score"], result["reward_extra_info"]["reward_mask"]) == (-1.0, 1)
    assert result["reward_extra_info"]["reward_status"] == outcome.status


@pytest.mark.parametrize("status", ["error", "timeout"])
def test_only_value_has_a_substitute_that_counts(status: str) -> None:
    assert [policy.substitute(status) for policy in (RAISE, MASK, VALUE)] == [(0.0, False), (0.0, False), (-1.0, True)]


def test_raise_names_every_failed_sample_and_carries_all_outcomes() -> None:
    outcomes = [OK, FAILED, UNSCORABLE, LATE]
    with pytest.raises(BatchFailed) as caught:
        RAISE.check(outcomes, ["0", "1 (uid q1)", "2", "3"])
    assert str(caught.value).splitlines() == [
        "2 of 4 samples failed; fix the reward function, or set reward_model.on_error to mask or value",
        "  sample 1 (uid q1): error: ValueError: boom",
        "  sample 3: timeout: not scored within 1.0 s",
    ]
    assert caught.value.outcomes == outcomes


def test_of_many_failures_the_first_ten_are_named() -> None:
    with pytest.raises(BatchFailed) as caught:
        RAISE.check([FAILED] * 12, [str(row) for row in range(12)])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("12 of 12")
    assert lines[-1] == "  and 2 more"
    assert len(lines) == 12


def test_raise_is_content_where_nothing_failed() -> None:
    RAISE.check([OK, UNSCORABLE], ["0", "1"])
