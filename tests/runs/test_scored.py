"""The fields that scoring adds: strict JSON whatever user code returned, and counts that add up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RewardTimeout, Unscorable
from reward_loop.outcome import ErrorPolicy, Outcome, Reward
from reward_loop.runs.scored import OUTCOME_SCHEMA, Tally, outcome_fields, to_json

RAISE, VALUE = ErrorPolicy(), ErrorPolicy("value", -1.0)


def strict(text: str) -> Any:
    """Parse as RFC 8259 has it: no NaN, no Infinity, and UTF-8."""
    text.encode("utf-8")

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def ok(value: float, **extra: Any) -> Outcome:
    return Outcome("ok", Reward(value, extra), "", 0.5)


# -- the fields of a row ---------------------------------------------------------------------------------------------


def test_a_scored_row_gets_every_field_of_the_schema() -> None:
    fields = outcome_fields(Outcome("ok", Reward(3.0, {"acc": 1}, (1.0, 2.0)), "", 0.25), RAISE)
    assert list(fields) == OUTCOME_SCHEMA.names
    assert list(fields.values()) == [3.0, [1.0, 2.0], "ok", "", 0.25, {"acc": 1}]


def test_a_failed_row_has_no_reward() -> None:
    fields = outcome_fields(Outcome.from_error(RewardTimeout("late"), 1.0), RAISE)
    assert (fields["reward"], fields["reward_status"]) == (None, "timeout")
    assert fields["reward_message"] == "RewardTimeout: late"
    assert fields["reward_extra_info"] == {}


def test_a_failed_row_has_the_reward_that_on_error_gives_it() -> None:
    assert outcome_fields(Outcome.from_error(ValueError("no"), 0.0), VALUE)["reward"] == -1.0


def test_an_unscorable_row_has_no_reward_under_any_policy() -> None:
    fields = outcome_fields(Outcome.from_error(Unscorable("blank"), 0.0), VALUE)
    assert (fields["reward"], fields["reward_status"]) == (None, "unscorable")


# -- strict JSON -----------------------------------------------------------------------------------------------------


class Broken:
    """An object that can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Cyclic:
    """An array-like whose list holds itself."""

    def tolist(self) -> list[object]:
        return [self]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        (np.array([1.0, np.nan]), [1.0, None]),
        (torch.tensor(2.0), 2.0),
        (torch.tensor([[1.0, float("inf")]], requires_grad=True), [[1.0, None]]),
        (float("nan"), None),
        (float("-inf"), None),
        ((1, (2, None)), [1, [2, None]]),
        ({np.int64(4): 5}, {"4": 5}),
        ({(1, 2): float("nan")}, {"(1, 2)": None}),
        ({1: "a", None: "b", 2.5: "c"}, {"1": "a", "null": "b", "2.5": "c"}),
        (b"x", "b'x'"),
        (Broken(), "<Broken>"),
        (Cyclic(), ["…"]),
        (10**5000, hex(10**5000)),
        ("zażółć 😀 \u2028", "zażółć 😀 \u2028"),
        ("cut off: \ud83d", "cut off: \ud83d"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_whatever_a_function_returned_becomes_strict_json(value: object, meant: object) -> None:
    assert strict(to_json({"v": value, "plain": 1})) == {"v": meant, "plain": 1}


def test_a_value_that_holds_itself_is_cut_off() -> None:
    extra: dict[str, Any] = {"n": 1}
    extra["self"] = extra
    assert strict(to_json(extra)) == {"n": 1, "self": "…"}


def test_nesting_beyond_any_sense_is_cut_off() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "…" in to_json(deep)


def test_text_that_utf8_can_hold_is_not_escaped() -> None:
    assert to_json({"ü": "日本"}) == '{"ü": "日本"}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_what_json_can_hold_comes_back_as_it_was(value: object) -> None:
    assert strict(to_json(value)) == value


@given(st.lists(st.text(st.characters(codec=None, categories=["Cs", "Lu", "So"]))))
def test_halves_of_surrogate_pairs_come_back_too(texts: list[str]) -> None:
    value = {"texts": texts, "again": dict.fromkeys(texts, 1)}
    assert strict(to_json(value)) == json.loads(json.dumps(value))


def test_a_message_with_half_a_surrogate_pair_can_be_written() -> None:
    fields = outcome_fields(Outcome.from_error(ValueError("bad \ud83d"), 0.0), RAISE)
    assert fields["reward_message"].startswith("ValueError: bad \\ud83d")


# -- counts ----------------------------------------------------------------------------------------------------------


def tally_of(*outcomes: Outcome) -> Tally:
    tally = Tally()
    for outcome in outcomes:
        tally.add(outcome_fields(outcome, RAISE))
    return tally


FAILED = Outcome.from_error(ValueError("no"), 0.0)


def test_the_mean_is_of_the_rewards_that_there_are() -> None:
    tally = tally_of(ok(1.0), FAILED, ok(0.0), ok(-4.0))
    assert (tally.rows, tally.rewards, tally.mean) == (4, 3, -1.0)
    assert (tally.reward_min, tally.reward_max) == (-4.0, 1.0)
    assert tally.statuses == {"ok": 3, "error": 1}


def test_without_a_reward_there_is_no_mean() -> None:
    assert tally_of(FAILED).mean is None


@given(st.lists(st.sampled_from([ok(1.0), ok(-2.5), FAILED])), st.integers(0, 20))
def test_tallies_of_parts_add_up_and_survive_being_stored(outcomes: list[Outcome], cut: int) -> None:
    whole = tally_of(*outcomes)
    first, second = tally_of(*outcomes[:cut]), tally_of(*outcomes[cut:])
    first.merge(Tally.from_dict(json.loads(json.dumps(second.as_dict()))))
    assert first == whole
