"""The pace: full rate, halts, slow-downs and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.limits.pace import RECOVERY_PER_S, SLOW_DOWN, SLOWEST, Pace

paces = st.builds(Pace, st.floats(0, 1e6), st.floats(0, 1e6), st.floats(SLOWEST, 1))


def test_at_full_rate_a_second_is_a_second_of_work() -> None:
    pace = Pace(10.0)
    assert pace.work_at(17.5) == 7.5
    assert pace.time_of(7.5) == 17.5


def test_during_a_halt_no_work_is_done() -> None:
    pace = Pace(0.0).halted(5.0, until=8.0)
    assert [pace.work_at(time) for time in (5.0, 7.0, 8.0, 9.0)] == [5.0, 5.0, 5.0, 6.0]
    assert pace.time_of(5.0) == 8.0
    assert pace.time_of(5.5) == 8.5


def test_a_shorter_halt_does_not_cut_a_longer_one_short() -> None:
    assert Pace(0.0).halted(5.0, until=60.0).halted(6.0, until=7.0).since == 60.0


def test_a_slow_down_multiplies_the_rate_which_then_rises_steadily_to_the_full_one() -> None:
    pace = Pace(0.0).slowed(100.0)
    assert pace.share_at(100.0) == SLOW_DOWN
    assert pace.share_at(110.0) == pytest.approx(SLOW_DOWN + 10 * RECOVERY_PER_S)
    assert pace.share_at(1000.0) == 1.0
    assert pace.time_of_share(1.0) == pytest.approx(130.0)
    assert pace.work_at(130.0) == pytest.approx(100.0 + 30.0 * (SLOW_DOWN + 1.0) / 2)


def test_recovery_begins_when_the_halt_ends() -> None:
    pace = Pace(0.0).slowed(10.0).halted(10.0, until=50.0)
    assert pace.share_at(49.0) == pace.share_at(50.0) == SLOW_DOWN
    assert pace.share_at(60.0) == pytest.approx(SLOW_DOWN + 10 * RECOVERY_PER_S)


def test_there_is_a_slowest_pace() -> None:
    pace = Pace(0.0)
    for _ in range(100):
        pace = pace.slowed(0.0)
    assert pace.share == SLOWEST


@given(paces, st.floats(0, 1e4))
def test_the_time_of_some_work_is_when_that_work_is_done(pace: Pace, missing: float) -> None:
    time = pace.time_of(pace.done + missing)
    assert time >= pace.since
    assert pace.work_at(time) == pytest.approx(pace.done + missing, abs=1e-6)


@given(paces, st.floats(0, 2e6), st.floats(0, 100), st.floats(0, 100))
def test_no_change_of_pace_loses_or_invents_work(pace: Pace, now: float, halt_s: float, later: float) -> None:
    for changed in (pace.slowed(now), pace.halted(now, now + halt_s)):
        assert changed.work_at(now) == pace.work_at(now)
        assert changed.work_at(now + later) <= pace.work_at(now + later) + 1e-6
