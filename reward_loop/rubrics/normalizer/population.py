"""The z-score over a whole batch, whatever environments it comes from."""

from __future__ import annotations

from typing import ClassVar

from reward_loop.rubrics.normalizer.running_mean_std import RunningMeanStd


class Population(RunningMeanStd):
    """As `RunningMeanStd`, but a batch is compared with itself alone, and a single reward with all environments' so far."""

    pooled: ClassVar[bool] = True
