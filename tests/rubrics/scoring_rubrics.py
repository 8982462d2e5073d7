"""Rubrics that tests are made of."""

from __future__ import annotations

import asyncio
from typing import Any

from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.rubric import Rubric

STEP = Action("It is 42."), Observation()


class Fixed(Rubric):
    """Gives `score`, and counts its calls."""

    def __init__(self, score: Any = 1.0) -> None:
        self.score = score
        self.calls = 0

    def forward(self, action: Any, observation: Any) -> Any:
        self.calls += 1
        return self.score


class Awaited(Fixed):
    """`Fixed`, once the event loop has been round."""

    async def forward(self, action: Any, observation: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        return self.score


class Raising(Rubric):
    """Raises at once."""

    def forward(self, action: Any, observation: Any) -> Any:
        raise ValueError("no such luck")


class Meeting(Rubric):
    """Gives 1 once `others` have come to the same place: only rubrics that run at the same time ever do."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        self.barrier = barrier

    async def forward(self, action: Any, observation: Any) -> float:
        async with asyncio.timeout(10):
            await self.barrier.wait()
        return 1.0


class Hanging(Rubric):
    """Never ends by itself; says when it began and when it was cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.cancelled = False

    async def forward(self, action: Any, observation: Any) -> float:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return 1.0
