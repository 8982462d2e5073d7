"""Graders in processes of this worker's own."""

from __future__ import annotations

import functools
import os
from typing import Any, Protocol

from pydantic import Field

from reward_loop.errors import ConfigError
from reward_loop.isolation.processes import GraderProcesses
from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register


class PrimeKwargs(ManagerKwargs):
    """Settings of the managers that grade in other processes."""

    num_processes: int | None = Field(default=None, gt=0)
    """Processes that grade side by side; None: one per core."""


class Graders(Protocol):
    """What runs the function elsewhere."""

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Return what the function returns for these inputs."""

    def close(self) -> None:
        """End it."""


@register("prime")
class PrimeRewardManager(RewardManagerBase):
    """Call a synchronous function in a process pool: it may compute for long, need a main thread, hang or crash.

    `reward_model.timeout_s` counts from the moment that a process takes the sample; the process is then killed.
    """

    kwargs_model = PrimeKwargs
    owns_deadline = True
    in_thread = False

    def check(self) -> None:
        """Raise ConfigError for an async function, besides what every manager checks."""
        super().check()
        if self.is_async:
            raise ConfigError(
                f"reward_manager {self.config.reward_model.reward_manager.name} grades in other processes and takes "
                "synchronous functions only; use naive for an async one"
            )

    async def call(self, inputs: dict[str, Any]) -> Any:
        """Call the function in another process."""
        constants = self._constants
        return await self._graders.call({name: value for name, value in inputs.items() if name not in constants})

    def close(self) -> None:
        """Kill the processes."""
        super().close()
        if "_graders" in self.__dict__:
            self._graders.close()

    @property
    def num_processes(self) -> int:
        """How many processes grade side by side."""
        return self.kwargs.num_processes or os.cpu_count() or 1

    @property
    def _constants(self) -> dict[str, Any]:
        if not self.reward_router_address:
            return {}
        return {
            "reward_router_address": self.reward_router_address,
            "reward_model_tokenizer": self.reward_model_tokenizer,
        }

    @functools.cached_property
    def _graders(self) -> Graders:
        return self.start_graders()

    def start_graders(self) -> Graders:
        """Start what runs the function. Override to run it elsewhere."""
        return GraderProcesses(self._function, self._constants, self.num_processes, self.config.reward_model.timeout_s)
