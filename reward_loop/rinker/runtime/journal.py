"""What a learner has done since its last checkpoint, so that another can do it again. Pure: no I/O.

Invariant: who loads the checkpoint and does what the journal holds, in its order, is where the learner was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.types import AdamParams, Datum


@dataclass(frozen=True, slots=True)
class Passed:
    """A forward_backward that added gradients."""

    data: Sequence[Datum]
    loss_fn: str
    config: LossConfig | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint of the user's that was loaded."""

    directory: Path
    optimizer: bool


Entry = Passed | AdamParams | Loaded
"""A pass, a step, or a load."""


class Journal:
    """The entries since the last checkpoint; a checkpoint is due after `every_steps` steps."""

    def __init__(self, every_steps: int) -> None:
        self._every_steps = every_steps
        self.entries: list[Entry] = []
        self.restarts = 0
        """Deaths since the last checkpoint."""

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint: only where no gradients are pending; after a load at once, lest that goes."""
        if not self.entries or isinstance(self.entries[-1], Passed):
            return False
        loaded = any(isinstance(entry, Loaded) for entry in self.entries)
        return loaded or sum(isinstance(entry, AdamParams) for entry in self.entries) >= self._every_steps

    def add(self, entry: Entry) -> None:
        """Note what has been done."""
        self.entries.append(entry)

    def dropped(self) -> None:
        """Forget the passes since the last step: their gradients are gone."""
        while self.entries and isinstance(self.entries[-1], Passed):
            self.entries.pop()

    def saved(self) -> None:
        """Begin anew: all that was done is in a checkpoint."""
        self.entries.clear()
        self.restarts = 0
