"""When a learner saves itself, and what it does again."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_loop.rinker.runtime.journal import Entry, Journal, Loaded, Passed
from reward_loop.rinker.types import AdamParams

PASSED, STEPPED, LOADED = Passed([], "ppo", None), AdamParams(), Loaded(Path("saved"), True)


@pytest.mark.parametrize(
    ("entries", "due"),
    [
        ([], False),
        ([PASSED, STEPPED], False),
        ([PASSED, STEPPED, PASSED, STEPPED], True),
        ([PASSED, STEPPED, PASSED, STEPPED, PASSED], False),  # its gradients would not be in the checkpoint
        ([LOADED], True),  # what was loaded may be gone when it is wanted again
        ([LOADED, PASSED], False),
    ],
)
def test_a_checkpoint_is_due_after_so_many_steps_and_after_a_load(entries: list[Entry], due: bool) -> None:
    journal = Journal(2)
    for entry in entries:
        journal.add(entry)
    assert journal.due == due


def test_a_checkpoint_takes_the_place_of_what_came_before() -> None:
    journal = Journal(1)
    journal.add(PASSED)
    journal.restarts = 2
    journal.saved()
    assert (journal.entries, journal.restarts) == ([], 0)


def test_gradients_that_were_dropped_are_not_made_again() -> None:
    journal = Journal(5)
    for entry in (PASSED, STEPPED, PASSED, PASSED):
        journal.add(entry)
    journal.dropped()
    assert journal.entries == [PASSED, STEPPED]
