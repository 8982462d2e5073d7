"""The outcomes of a batch, by column.

A list of a hundred thousand outcomes is two hundred thousand objects that the garbage collector walks through again and
again, at up to a third of the time that scoring takes; columns of plain values cost it nothing. Invariant: reading row i gives
the outcome that was put there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, overload

from reward_loop.outcome import Outcome, Reward, Status

_EXTRA_OF_NONE: dict[str, Any] = {}


class OutcomeTable(Sequence[Outcome]):
    """Room for the outcome of each of `rows` rows; `statuses` says "missing" where there is none yet."""

    def __init__(self, rows: int) -> None:
        self.statuses: list[Status | Literal["missing"]] = ["missing"] * rows
        self.messages: list[str] = [""] * rows
        self.seconds: list[float] = [0.0] * rows
        self.rewards: list[float | None] = [None] * rows
        self.extras: list[dict[str, Any]] = [_EXTRA_OF_NONE] * rows
        self.tokens: dict[int, tuple[float, ...]] = {}
        """Per-token rewards, of the rows that have them."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> OutcomeTable:
        """Return the table of these outcomes."""
        if isinstance(outcomes, cls):
            return outcomes
        listed = list(outcomes)
        table = cls(len(listed))
        for row, outcome in enumerate(listed):
            table.put(row, outcome)
        return table

    def put(self, row: int, outcome: Outcome) -> None:
        """Set the outcome of a row."""
        self.statuses[row] = outcome.status
        self.messages[row] = outcome.message
        self.seconds[row] = outcome.seconds
        reward = outcome.reward
        if reward is not None:
            self.rewards[row] = reward.value
            self.extras[row] = reward.extra
            if reward.tokens is not None:
                self.tokens[row] = reward.tokens

    def __len__(self) -> int:
        return len(self.statuses)

    @overload
    def __getitem__(self, row: int) -> Outcome: ...
    @overload
    def __getitem__(self, row: slice) -> list[Outcome]: ...
    def __getitem__(self, row: int | slice) -> Outcome | list[Outcome]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        status = self.statuses[row]
        if status == "missing":
            raise LookupError(f"row {row} has no outcome yet")
        value = self.rewards[row]
        reward = None if value is None else Reward(value, self.extras[row], self.tokens.get(row % len(self)))
        return Outcome(status, reward, self.messages[row], self.seconds[row])
