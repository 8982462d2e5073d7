"""What every method of normalising is: a pure function of what was seen and one reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from reward_loop.rubrics.normalizer.history import History


class Method(ABC):
    """One method; it holds settings, never what was seen."""

    keeps_window: ClassVar[bool] = False
    """Whether it needs the last rewards, and not their moments alone."""
    pooled: ClassVar[bool] = False
    """Whether all environments count as one, and a batch is normalised by itself."""

    @abstractmethod
    def normalize(self, seen: History, reward: float) -> float:
        """Return the reward as it stands among those seen, which hold it too unless statistics are frozen."""
