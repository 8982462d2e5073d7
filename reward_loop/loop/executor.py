"""What the manager asks of the place where samples are scored, and the two such places in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from reward_loop.data import DataProto
from reward_loop.loop.sample_tasks import EmitRow
from reward_loop.loop.units import Rows
from reward_loop.loop.worker import RewardLoopWorker
from reward_loop.managers.scorer import Unit


class Executor(Protocol):
    """Scores batches somewhere; used from one event loop."""

    async def start(self) -> Unit:
        """Build everything, raising ConfigError; return what the reward manager scores at a time."""
        ...

    async def score(self, data: DataProto, emit: EmitRow, units: Sequence[Rows] | None = None) -> None:
        """Emit the outcome of every row as soon as it is there; `units`: rows scored by one call, else told by the columns.

        Raises DataError, before any row is scored, for a batch that is malformed as a whole.
        """

    @property
    def rows_go_alone(self) -> bool:
        """Whether rows that are scored together end as early as those that are scored one by one."""
        ...

    @property
    def handles(self) -> list[Any] | None:
        """The workers' actor handles, if they are actors."""

    async def close(self) -> None:
        """Release what the workers hold."""


class LocalExecutor:
    """One worker on this event loop; `in_order` is `use_reward_loop: false`: one sample after the other."""

    handles = None

    def __init__(self, worker: RewardLoopWorker, *, in_order: bool) -> None:
        self._worker = worker
        self._in_order = in_order

    @property
    def rows_go_alone(self) -> bool:
        """Whether none of the rows waits for another."""
        return self._worker.rows_go_alone and not self._in_order

    async def start(self) -> Unit:
        """Build the worker's reward manager."""
        return (await self._worker.start())[0]

    async def score(self, data: DataProto, emit: EmitRow, units: Sequence[Rows] | None = None) -> None:
        """Score in this process."""
        await self._worker.score(data, emit, units, in_order=self._in_order)

    async def close(self) -> None:
        """End what it started."""
        await self._worker.aclose()
