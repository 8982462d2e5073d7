"""A scale that grows with what was seen (`normalize="running"`).

The same score is placed differently as time goes by, so this has to be asked for, and its state belongs into checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from reward_loop.rubrics.scales import checked_scale


class RunningScale:
    """Places each score between the lowest and the highest so far, itself included; 0 while these are the same."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ends: tuple[float, float] | None = None
        self._lock = threading.Lock()  # clones share it, and rubrics run in threads

    def place(self, score: float) -> float:
        """Take a score in, and return where between 0 and 1 it lies."""
        with self._lock:
            low, high = self._ends or (score, score)
            low, high = self._ends = min(low, score), max(high, score)
        return (score - low) / (high - low) if low < high else 0.0

    @property
    def state(self) -> list[float] | None:
        """The lowest and the highest score so far; None before the first."""
        return None if self._ends is None else list(self._ends)

    def load(self, state: Sequence[float] | None) -> None:
        """Take over what `state` was."""
        if state is None or len(set(state)) == 1:
            self._ends = None if state is None else (float(state[0]), float(state[0]))
        else:
            self._ends = checked_scale(self._name, state)
