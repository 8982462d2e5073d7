"""Scoring of samples that come one by one, for any trainer's rollout loop.

Invariants: rows taken and not yet yielded never exceed the limit (a single larger item is taken alone); each row is yielded
exactly once; the consumer's loop and the reward loop's are different threads, and only `_arrived` crosses between them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Hashable, Iterable
from dataclasses import dataclass

from reward_loop.data import DataProto, as_data_proto
from reward_loop.errors import DataError, RewardLoopError
from reward_loop.loop.executor import Executor
from reward_loop.loop.units import Rows
from reward_loop.loop_thread import LoopThread
from reward_loop.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Scored:
    """The outcome of one row of the stream: `row` of the `item`-th item, both counted from 0."""

    item: int
    row: int
    outcome: Outcome


class Stream:
    """One pass over a stream of samples."""

    def __init__(
        self,
        loop: LoopThread,
        executor: Executor,
        samples: AsyncIterable[DataProto] | Iterable[DataProto],
        max_pending: int,
        group_size: int,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._samples = samples
        self._max_pending = max_pending
        self._groups = GroupCollector(group_size)
        self._results: deque[Scored] = deque()
        self._singles: list[tuple[int, DataProto]] = []

    async def results(self) -> AsyncGenerator[Scored, None]:
        """Yield outcomes as they end."""
        self._here = asyncio.get_running_loop()
        self._pending = 0
        self._room = asyncio.Event()
        self._arrival = asyncio.Event()
        self._arrival_due = False
        intake = asyncio.create_task(self._take())
        intake.add_done_callback(lambda _: self._arrival.set())
        try:
            while self._results or not intake.done():
                while self._results:
                    scored = self._results.popleft()
                    self._pending -= 1
                    self._room.set()
                    yield scored
                if not intake.done():
                    await self._arrival.wait()
                    self._arrival.clear()
            intake.result()
        finally:
            intake.cancel()
            await asyncio.wait([intake])

    async def _take(self) -> None:
        """Hand items to the executor while there is room; ends when all have been scored."""
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    await self._hand_over(tasks)
                except Exception as error:  # noqa: BLE001 - the producer's own: what it gave before is scored first
                    failure = error
        except* RewardLoopError as group:
            raise group.exceptions[0] from None
        if failure is not None:
            raise failure

    async def _hand_over(self, tasks: asyncio.TaskGroup) -> None:
        await self._room_for(1)
        number = 0
        async for item in _aiter(self._samples):
            try:
                data = as_data_proto(item)
            except DataError as error:
                self._pending += 1
                self._fail([(number, 0)], error)
            else:
                await self._room_for(len(data))
                self._pending += len(data)
                if ready := self._groups.add(number, data):
                    self._start(ready, tasks)
            number += 1
            await self._room_for(1)
        for ready in self._groups.rest():
            tasks.create_task(self._score(ready))

    async def _room_for(self, rows: int) -> None:
        # Rows that wait for the rest of their group can't end before it is taken: alone they hold nothing back.
        while self._pending > self._groups.held and self._pending + rows > self._max_pending:
            self._room.clear()
            await self._room.wait()

    def _start(self, items: list[tuple[int, DataProto]], tasks: asyncio.TaskGroup) -> None:
        """Score what is ready; single samples that come in one go together, for each crossing of threads costs."""
        if len(items) > 1 or len(items[0][1]) > 1 or not self._executor.rows_go_alone:
            tasks.create_task(self._score(items))
            return
        self._singles += items
        if len(self._singles) == 1:
            tasks.create_task(self._score_singles(tasks))

    async def _score_singles(self, tasks: asyncio.TaskGroup) -> None:
        """Score those that have come until now; if they can't be one batch, each by itself."""
        items, self._singles = self._singles, []
        try:
            await self._score_as(items, [[row] for row in range(len(items))])
        except DataError:
            for item in items:
                tasks.create_task(self._score([item]))

    async def _score(self, items: list[tuple[int, DataProto]]) -> None:
        try:
            await self._score_as(items, None)
        except DataError as error:  # a malformed item costs itself, not the stream
            self._fail([(number, row) for number, data in items for row in range(len(data))], error)

    async def _score_as(self, items: list[tuple[int, DataProto]], units: list[Rows] | None) -> None:
        """Score the items as one batch; DataError, before any row is scored, if they are malformed."""
        places = dict(enumerate((number, row) for number, data in items for row in range(len(data))))

        def emit(row: int, outcome: Outcome) -> None:
            self._results.append(Scored(*places.pop(row), outcome))
            if not self._arrival_due:
                self._arrival_due = True
                try:
                    self._here.call_soon_threadsafe(self._arrived)
                except RuntimeError:  # the consumer's loop was closed: it was interrupted, and nobody waits any more
                    return

        data = items[0][1] if len(items) == 1 else DataProto.concat([data for _, data in items])
        await self._loop.run_async(self._executor.score(data, emit, units))

    def _fail(self, places: Iterable[tuple[int, int]], error: DataError) -> None:
        self._results.extend(Scored(*place, Outcome.from_error(error, 0.0)) for place in places)
        self._arrived()

    def _arrived(self) -> None:
        self._arrival_due = False
        self._arrival.set()


class GroupCollector:
    """Holds single samples back until the `size` samples of their `uid` are there; with size 1, none."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.held = 0
        """Samples that wait for the rest of their group."""
        self._waiting: dict[object, list[tuple[int, DataProto]]] = {}

    def add(self, number: int, data: DataProto) -> list[tuple[int, DataProto]] | None:
        """Return the items that can be scored now that this one is there."""
        uids = data.column("uid")
        if self._size == 1 or len(data) != 1 or uids is None or uids[0] is None or not isinstance(uids[0], Hashable):
            return [(number, data)]
        group = self._waiting.setdefault(uids[0], [])
        group.append((number, data))
        self.held += 1
        if len(group) < self._size:
            return None
        self.held -= self._size
        return self._waiting.pop(uids[0])

    def rest(self) -> list[list[tuple[int, DataProto]]]:
        """Return the groups that stayed incomplete, at the end of the stream."""
        return list(self._waiting.values())


async def _aiter(samples: AsyncIterable[DataProto] | Iterable[DataProto]) -> AsyncIterator[DataProto]:
    if isinstance(samples, AsyncIterable):
        async for sample in samples:
            yield sample
        return
    for sample in samples:
        yield sample
        await asyncio.sleep(0)  # a plain iterator never suspends: without this nothing is scored before there is no more room
