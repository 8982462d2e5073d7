"""Whose turn it is to update the weights, and with which step."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.update_session import Step, UpdateSession, UpdateSlot

STEPS: list[Step] = ["ticket", "prepare", "transfer", "verify", "commit", "revert"]
ABORTED = Refusal(409, "aborted", "session 'a' was aborted")


def advanced(session: UpdateSession, *steps: Step) -> UpdateSession:
    """Take these steps, at once."""
    for step in steps:
        session.begin(step, session.since_s)
        session.succeed()
    return session


def refused(session: UpdateSession, step: Step, now_s: float = 0.0) -> Refusal:
    with pytest.raises(Refusal) as caught:
        session.begin(step, now_s)
    return caught.value


@pytest.mark.parametrize("steps", [[*STEPS[:3], "commit"], STEPS[:5], ["revert"]])
def test_an_update_takes_its_steps_in_their_order(steps: list[Step]) -> None:
    assert advanced(UpdateSlot().claim("a", "t", 60, 0), *steps).phase == "committed"


@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_whatever_is_tried_only_complete_updates_are_committed(tried: list[Step]) -> None:
    session = UpdateSlot().claim("a", "t", 60, 0)
    taken: list[Step] = []
    for step in tried:
        with suppress(Refusal):
            session.begin(step, 0)
            session.succeed()
            taken.append(step)
    if session.phase == "committed":
        assert taken in (["revert"], [*STEPS[:3], "commit"], STEPS[:5])


def test_a_step_out_of_order_says_which_one_is_next() -> None:
    session = advanced(UpdateSlot().claim("a", "t", 60, 0), "ticket")
    refusal = refused(session, "commit")
    assert (refusal.status, refusal.kind) == (409, "out_of_order")
    assert "session 'a' is ticketed" in str(refusal)
    assert "POST /update_weights with phase prepare" in str(refusal)


def test_one_step_at_a_time() -> None:
    session = UpdateSlot().claim("a", "t", 60, 0)
    session.begin("ticket", 0)
    assert "is still under way" in str(refused(session, "ticket"))


def test_a_second_trainer_is_told_who_is_first_since_when_and_until_when() -> None:
    slot = UpdateSlot()
    slot.claim("a", "41@here", 60, 100)
    with pytest.raises(Refusal) as caught:
        slot.claim("b", "42@there", 60, 112)
    assert (caught.value.status, caught.value.kind) == (409, "busy")
    assert "41@here updates the weights in the session 'a' since 12.0 s (started; 48.0 s are left to it)" in str(caught.value)


def test_a_session_ends_with_its_time_and_not_before() -> None:
    slot = UpdateSlot()
    session = slot.claim("a", "t", 60, 0)
    assert slot.expired(59.9) is None
    assert slot.expired(60.0) is session
    assert (refused(session, "ticket", 60.0).status, refused(session, "ticket", 60.0).kind) == (504, "expired")


@pytest.mark.parametrize("steps", [("ticket", "prepare", "transfer"), ()])
def test_a_commit_that_has_begun_does_not_expire(steps: tuple[Step, ...]) -> None:
    slot = UpdateSlot()
    session = advanced(slot.claim("a", "t", 60, 0), *steps)
    session.begin("commit" if steps else "revert", 59)
    assert slot.expired(1000) is None
    assert "; it will not be stopped)" in session.describe(1000)


def test_a_session_that_ended_says_why_and_leaves_its_place() -> None:
    slot = UpdateSlot()
    session = slot.claim("a", "t", 60, 0)
    assert slot.end(session, ABORTED)
    assert not slot.end(session, Refusal(500, "failed", "later"))
    for _ in range(2):
        with pytest.raises(Refusal, match="was aborted"):
            slot.named("a", 1)
    assert slot.claim("b", "t", 60, 1) is slot.named("b", 1)


def test_a_name_that_nobody_has_is_refused_with_who_has_the_place() -> None:
    slot = UpdateSlot()
    with pytest.raises(Refusal, match=r"no session 'x': POST /start_weight_update first$"):
        slot.named("x", 0)
    slot.claim("a", "41@here", 60, 0)
    with pytest.raises(Refusal, match=r"no session 'x'.*41@here updates"):
        slot.named("x", 0)
