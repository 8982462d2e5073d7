"""Outcomes by column read back as they were put."""

from __future__ import annotations

import pytest

from reward_loop.outcome import Outcome, Reward
from reward_loop.outcome_table import OutcomeTable

OUTCOMES = [
    Outcome("ok", Reward(0.5, {"acc": 0.5}), "", 0.1),
    Outcome("error", None, "ValueError: no", 0.2),
    Outcome("ok", Reward(3.0, {}, (1.0, 2.0)), "", 0.3),
    Outcome("unscorable", None, "Unscorable: empty", 0.0),
]


def test_outcomes_read_back_as_they_were_put() -> None:
    table = OutcomeTable.of(OUTCOMES)
    assert list(table) == OUTCOMES
    assert table[-2] == OUTCOMES[2]
    assert table[1:3] == OUTCOMES[1:3]
    assert OutcomeTable.of(table) is table


def test_a_row_without_an_outcome_is_no_outcome() -> None:
    table = OutcomeTable(2)
    table.put(1, OUTCOMES[0])
    with pytest.raises(LookupError, match="row 0 has no outcome yet"):
        table[0]
