"""Keeps the weights of a running pipeline on their schedules, from a trainer's loop.

Invariants: the weights at an episode are the same whether the run went through or was resumed there, and nothing has to be saved
for that; only what has changed is sent, and all of it after a start, since nobody knows what the pipeline has.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.rubrics.schedules import Schedule, schedules_of


class ScheduleRunner:
    """Sends scheduled weights by `update({name: weight})`: `RubricConfigClient.update`, or that of the async client.

    `every` is how many episodes a value holds: at episode 1234 with 100 it is that of episode 1200.
    """

    def __init__(
        self,
        schedules: Mapping[str, Schedule | Mapping[str, Any] | float],
        update: Callable[[dict[str, float]], object],
        *,
        every: int = 1,
    ) -> None:
        if every < 1:
            raise ConfigError(f"every={every} must be 1 episode or more")
        self.schedules = schedules_of(schedules)
        self._update = update
        self._every = every
        self._sent: dict[str, float] = {}

    def weights(self, episode: int) -> dict[str, float]:
        """Return all scheduled weights at an episode."""
        begun = episode - episode % self._every
        return {name: schedule(begun) for name, schedule in self.schedules.items()}

    def due(self, episode: int) -> dict[str, float]:
        """Return those that were not sent yet."""
        return {name: weight for name, weight in self.weights(episode).items() if self._sent.get(name) != weight}

    def step(self, episode: int) -> dict[str, float]:
        """Send what is due, and return it, for the log; what could not be sent (the error of `update`) stays due."""
        due = self.due(episode)
        if due and inspect.isawaitable(answer := self._update(due)):
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError("update must be awaited: call astep, or give the update of a RubricConfigClient")
        self._sent |= due
        return due

    async def astep(self, episode: int) -> dict[str, float]:
        """Do what `step` does with an `update` that is awaited."""
        due = self.due(episode)
        if due:
            answer = self._update(due)
            if isinstance(answer, Awaitable):
                await answer
        self._sent |= due
        return due
