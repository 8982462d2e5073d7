"""The tasks in which user code is awaited, a unit's rows in each.

Invariants: all have ended when the block is left; user code that cancels the task it runs in costs its own rows, which end as
an error, and nothing else; the cancellation of the block itself cancels them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from reward_loop.errors import RewardFunctionError
from reward_loop.outcome import Outcome

EmitRow = Callable[[int, Outcome], None]


class SampleTasks:
    """A task group that emits an outcome for the rows of a task which was cancelled from within."""

    def __init__(self, emit: EmitRow) -> None:
        self._emit = emit
        self._group = asyncio.TaskGroup()

    def start(self, rows: Sequence[int], coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `coroutine`, which emits the outcomes of `rows`."""
        task = self._group.create_task(coroutine)
        task.add_done_callback(lambda ended: self._ended(rows, ended))
        return task

    async def __aenter__(self) -> Self:
        self._block = asyncio.current_task()
        await self._group.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._group.__aexit__(kind, error, trace)

    def _ended(self, rows: Sequence[int], task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._block is not None and not self._block.cancelling():
            error = RewardFunctionError("CancelledError: the reward function was cancelled from within")
            for row in rows:
                self._emit(row, Outcome.from_error(error, 0.0))
