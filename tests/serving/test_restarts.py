"""Restarts: longer and longer pauses, an end, and a new beginning after a steady time."""

from __future__ import annotations

from reward_loop.serving.restarts import Restarts


def test_pauses_double_up_to_a_minute() -> None:
    restarts = Restarts(most=9, backoff_s=1.0)
    assert [restarts.pause_s(0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_after_the_allowed_crashes_in_a_row_it_is_given_up() -> None:
    restarts = Restarts(most=2, backoff_s=0.0)
    assert [restarts.pause_s(0.0) for _ in range(3)] == [0, 0, None]


def test_a_server_that_served_steadily_has_left_its_crashes_behind() -> None:
    restarts = Restarts(most=1, backoff_s=1.0)
    restarts.pause_s(0.0)
    restarts.ready_at = 10.0
    assert restarts.pause_s(1000.0) == 1.0


def test_a_server_that_crashes_soon_after_its_start_has_not() -> None:
    restarts = Restarts(most=1, backoff_s=1.0)
    restarts.pause_s(0.0)
    restarts.ready_at = 10.0
    assert restarts.pause_s(11.0) is None


def test_no_restart_is_a_choice() -> None:
    assert Restarts(most=0, backoff_s=1.0).pause_s(0.0) is None
