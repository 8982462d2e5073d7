"""How long each stage of a step was at work, and on what share of its time others were too."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["sampling", "scoring", "train_step"]


class StageClock:
    """Adds up the time in which at least one task is in a stage: ten at once for a second are a second."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._busy: dict[Stage, float] = {"sampling": 0.0, "scoring": 0.0, "train_step": 0.0}
        self._active: dict[Stage, int] = dict.fromkeys(self._busy, 0)
        self._since: dict[Stage, float] = {}

    @contextmanager
    def at(self, stage: Stage) -> Generator[None]:
        """Count what runs inside as being at work in a stage."""
        if not self._active[stage]:
            self._since[stage] = self._now()
        self._active[stage] += 1
        try:
            yield
        finally:
            self._active[stage] -= 1
            if not self._active[stage]:
                self._busy[stage] += self._now() - self._since[stage]

    def lap(self) -> dict[str, float]:
        """Return the seconds of each stage since the last lap, under the cookbook's names, and begin another."""
        now = self._now()
        for stage, count in self._active.items():
            if count:
                self._busy[stage] += now - self._since[stage]
                self._since[stage] = now
        seconds = {f"time/{stage}": busy for stage, busy in self._busy.items()}
        self._busy = dict.fromkeys(self._busy, 0.0)
        return seconds
