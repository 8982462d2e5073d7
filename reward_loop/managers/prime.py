"""Graders in processes of this worker's own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register


class PrimeKwargs(ManagerKwargs):
    """Settings of the managers that grade in other processes."""

    num_processes: int | None = Field(default=None, gt=0)
    """Processes that grade side by side; None: `reward_model.grader.processes`."""


@register("prime")
class PrimeRewardManager(RewardManagerBase):
    """Call a synchronous function in killable processes, whatever it declares: `naive` with isolation=process."""

    kwargs_model = PrimeKwargs
    isolation = "process"

    @property
    def grader_settings(self) -> dict[str, Any]:
        """The arguments of `GraderPool`."""
        settings = super().grader_settings
        return settings | {"processes": self.kwargs.num_processes or settings["processes"]}
