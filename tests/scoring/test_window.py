"""When a batch leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError
from reward_loop.scoring.window import Window

WINDOW = Window(max_batch=4, max_wait_s=0.002, max_in_flight=2)


def test_an_idle_server_gets_what_there_is_at_once() -> None:
    assert WINDOW.leaves_at(1, since=5.0, in_flight=0) == 5.0


def test_beside_another_batch_the_first_sample_waits_for_others() -> None:
    assert WINDOW.leaves_at(1, since=5.0, in_flight=1) == 5.002


def test_a_full_batch_does_not_wait() -> None:
    assert WINDOW.leaves_at(4, since=5.0, in_flight=1) == 5.0


def test_nothing_leaves_while_as_many_as_may_be_are_under_way() -> None:
    assert WINDOW.leaves_at(9, since=5.0, in_flight=2) is None


def test_nothing_leaves_when_nothing_waits() -> None:
    assert WINDOW.leaves_at(0, since=0.0, in_flight=0) is None


@given(st.integers(0, 9), st.floats(0, 100), st.integers(0, 3))
def test_no_sample_waits_longer_than_the_window_for_others(waiting: int, since: float, in_flight: int) -> None:
    due = WINDOW.leaves_at(waiting, since, in_flight)
    assert (due is None) == (waiting == 0 or in_flight >= 2)
    assert due is None or since <= due <= since + 0.002


@pytest.mark.parametrize("wrong", [{"max_batch": 0}, {"max_in_flight": 0}, {"max_wait_s": -1.0}, {"max_wait_s": float("nan")}])
def test_a_window_that_can_not_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        Window(**wrong)  # type: ignore[arg-type]
