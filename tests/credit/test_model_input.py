"""What a reward model is given to judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reward_loop.credit import Rollout, Step
from reward_loop.credit.model_input import conversation, prepared, step_input
from reward_loop.errors import DataError, RewardFunctionError, Unscorable
from tests.credit.rollouts import rollout


def test_a_rollout_is_all_that_was_seen_and_done_in_order() -> None:
    assert conversation(rollout("a", [0.0, 0.0])) == "see 0\ndo 0\nsee 1\ndo 1"


def test_a_step_is_what_was_seen_and_done() -> None:
    one = rollout("a", [0.0, 0.0])
    assert step_input(one, one.steps[1]) == "see 1\ndo 1"


def test_what_is_empty_makes_no_line() -> None:
    nothing: Any = None
    assert conversation(Rollout("a", [Step(0, "", "hi"), Step(1, nothing, "you")])) == "hi\nyou"


def test_token_ids_are_joined_as_they_are() -> None:
    assert conversation(Rollout("a", [Step(0, [1, 2], (3,)), Step(1, [], [4])])) == [1, 2, 3, 4]


def test_a_rollout_without_steps_is_unscorable() -> None:
    with pytest.raises(Unscorable, match="nothing to judge"):
        conversation(Rollout("a", []))


@pytest.mark.parametrize("seen", [{"role": "user"}, [{"role": "user"}], [1, 2], 7, np.array([1])])
def test_what_is_neither_text_nor_ids_needs_a_to_text(seen: Any) -> None:
    with pytest.raises(DataError, match="give the scorer a to_text"):
        conversation(Rollout("a", [Step(0, seen, "text")]))


def test_any_integers_are_made_ready_to_be_sent() -> None:
    ids: Any = np.array([1, 2])
    assert prepared(lambda: ids) == [1, 2]


def test_none_and_errors_are_kept_as_why_there_is_no_input() -> None:
    wrong: Any = [1.5]
    broken: dict[str, str] = {}
    assert isinstance(prepared(lambda: None), Unscorable)
    assert isinstance(prepared(lambda: broken["text"]), RewardFunctionError)
    assert isinstance(prepared(lambda: wrong), RewardFunctionError)
