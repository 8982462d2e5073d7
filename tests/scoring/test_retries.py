"""What is sent again, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.scoring.retries import LONGEST_PAUSE_S, LOST_ATTEMPTS, UNTIL_THE_DEADLINE, Fate, Patience, fate_of

FATES: list[Fate] = ["final", "not begun", "lost"]


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 500, 504, 529, 307])
def test_what_a_service_has_decided_is_final(status: int) -> None:
    assert fate_of(status, asleep=False) == "final"
    assert UNTIL_THE_DEADLINE.pause_s("final", 1, left_s=60.0, luck=0.5) is None


@pytest.mark.parametrize("status", [429, 503])
def test_what_was_not_begun_is_asked_again_until_the_deadline(status: int) -> None:
    assert fate_of(status, asleep=False) == "not begun"
    assert UNTIL_THE_DEADLINE.pause_s("not begun", 1000, left_s=60.0, luck=0.5) is not None


def test_who_sleeps_is_not_asked_again() -> None:
    assert fate_of(503, asleep=True) == "final"


def test_what_was_lost_may_be_what_brings_servers_down_and_goes_to_few_of_them() -> None:
    pauses = [UNTIL_THE_DEADLINE.pause_s("lost", attempt, left_s=60.0, luck=0.5) for attempt in range(1, LOST_ATTEMPTS + 1)]
    assert None not in pauses[:-1]
    assert pauses[-1] is None


def test_a_patience_may_have_an_end() -> None:
    assert Patience(attempts=3).pause_s("not begun", 2, left_s=60.0, luck=0.0) is not None
    assert Patience(attempts=3).pause_s("not begun", 3, left_s=60.0, luck=0.0) is None


def test_what_a_service_asks_to_wait_is_waited_for_in_full_or_not_at_all() -> None:
    pause = UNTIL_THE_DEADLINE.pause_s("not begun", 1, left_s=60.0, luck=0.0, retry_after_s=20.0)
    assert pause is not None
    assert pause >= 20.0
    assert UNTIL_THE_DEADLINE.pause_s("not begun", 1, left_s=19.0, luck=0.0, retry_after_s=20.0) is None


@given(st.sampled_from(FATES), st.integers(1, 10**6), st.floats(0, 100), st.floats(0, 1))
def test_a_pause_is_never_long_and_never_beyond_the_deadline(fate: Fate, attempt: int, left_s: float, luck: float) -> None:
    pause = UNTIL_THE_DEADLINE.pause_s(fate, attempt, left_s, luck)
    assert pause is None or 0 < pause <= LONGEST_PAUSE_S
    assert pause is None or pause < left_s


def test_those_that_failed_together_do_not_come_back_together() -> None:
    lucky, unlucky = (UNTIL_THE_DEADLINE.pause_s("not begun", 3, left_s=60.0, luck=luck) for luck in (0.0, 1.0))
    assert lucky is not None
    assert unlucky is not None
    assert unlucky == 2 * lucky
