from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.service.operation_queue import OperationQueue

NEVER = 3600.0


def queue(*, gap_timeout_s: float = NEVER, max_waiting: int = 100, max_results: int = 100) -> OperationQueue:
    return OperationQueue("m", gap_timeout_s=gap_timeout_s, max_waiting=max_waiting, max_results=max_results)


class Log:
    """Operations that note when they run."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.at_once = 0

    def operation(
        self, number: int, *, wait: asyncio.Event | None = None, error: Exception | None = None
    ) -> Callable[[], Awaitable[int]]:
        async def run() -> int:
            assert self.at_once == 0, "two operations at a time"
            self.at_once += 1
            try:
                await (asyncio.sleep(0) if wait is None else wait.wait())
                self.ran.append(number)
                if error is not None:
                    raise error
                return number * 10
            finally:
                self.at_once -= 1

        return run


async def started(group: asyncio.TaskGroup, awaitable: Awaitable[int]) -> asyncio.Task[int]:
    async def wait() -> int:
        return await awaitable

    task = group.create_task(wait())
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("arrival", [[1, 2, 3, 4], [4, 3, 2, 1], [3, 1, 4, 2], [2, 4, 1, 3]])
async def test_operations_run_in_the_order_of_their_numbers(arrival: list[int]) -> None:
    operations, log = queue(), Log()
    async with asyncio.TaskGroup() as group:
        tasks = {seq_id: await started(group, operations.run(seq_id, log.operation(seq_id))) for seq_id in arrival}
    assert log.ran == [1, 2, 3, 4]
    assert {seq_id: task.result() for seq_id, task in tasks.items()} == {1: 10, 2: 20, 3: 30, 4: 40}


async def test_a_number_that_comes_again_gives_the_same_result_and_runs_once() -> None:
    operations, log = queue(), Log()
    go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = await started(group, operations.run(1, log.operation(1, wait=go)))
        again = await started(group, operations.run(1, log.operation(99)))
        go.set()
    assert (first.result(), again.result(), await operations.run(1, log.operation(99))) == (10, 10, 10)
    assert log.ran == [1]


async def test_who_asked_again_and_leaves_does_not_end_the_operation() -> None:
    operations, log = queue(), Log()
    go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = await started(group, operations.run(1, log.operation(1, wait=go)))
        again = await started(group, operations.run(1, log.operation(1)))
        again.cancel()
        await asyncio.sleep(0)
        go.set()
    assert first.result() == 10


async def test_an_operation_that_fails_fails_alone_and_again_when_it_is_asked_for_again() -> None:
    operations, log = queue(), Log()
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"):
            await operations.run(1, log.operation(1, error=ValueError("wrong")))
    assert await operations.run(2, log.operation(2)) == 20
    assert log.ran == [1, 2]


async def test_a_gap_waits_and_ends_in_an_error_that_names_what_is_missing() -> None:
    operations, log = queue(gap_timeout_s=0.02), Log()
    with pytest.raises(
        RequestFailedError, match=r"operation 3 of m waits for operation 1, which has not come within 0.02 s"
    ) as failed:
        await operations.run(3, log.operation(3))
    assert failed.value.category == "user"
    assert [await operations.run(seq_id, log.operation(seq_id)) for seq_id in (1, 2, 4)] == [10, 20, 40]
    assert log.ran == [1, 2, 4]


async def test_what_waits_behind_a_long_operation_is_not_taken_for_a_gap() -> None:
    operations, log = queue(gap_timeout_s=0.02), Log()
    go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        await started(group, operations.run(1, log.operation(1, wait=go)))
        behind = await started(group, operations.run(2, log.operation(2)))
        await asyncio.sleep(0.06)
        assert not behind.done()
        go.set()
    assert behind.result() == 20


async def test_a_gap_that_is_filled_in_time_fails_nobody() -> None:
    operations, log = queue(gap_timeout_s=5), Log()
    async with asyncio.TaskGroup() as group:
        early = await started(group, operations.run(2, log.operation(2)))
        assert await operations.run(1, log.operation(1)) == 10
    assert early.result() == 20


@pytest.mark.parametrize("begun", [False, True])
async def test_one_that_is_cancelled_makes_way_for_those_behind_it(begun: bool) -> None:
    operations, log = queue(), Log()
    go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        if not begun:
            await started(group, operations.run(1, log.operation(1, wait=go)))
        number = 1 if begun else 2
        cancelled = await started(group, operations.run(number, log.operation(number, wait=asyncio.Event())))
        behind = await started(group, operations.run(number + 1, log.operation(number + 1)))
        cancelled.cancel()
        go.set()
    assert behind.result() == (number + 1) * 10
    with pytest.raises(RequestFailedError, match=f"operation {number} of m was cancelled"):
        await operations.run(number, log.operation(number))


@pytest.mark.parametrize("wrong", [0, -1])
async def test_numbers_begin_at_one(wrong: int) -> None:
    with pytest.raises(RequestFailedError, match=f"seq_id={wrong}; the first operation of a model is number 1"):
        await queue().run(wrong, Log().operation(1))


async def test_results_are_kept_as_long_as_there_is_room() -> None:
    operations, log = queue(max_results=2), Log()
    for seq_id in (1, 2, 3):
        await operations.run(seq_id, log.operation(seq_id))
    assert await operations.run(2, log.operation(2)) == 20
    with pytest.raises(RequestFailedError, match=r"operation 1 of m ran long ago .* the next one is 4"):
        await operations.run(1, log.operation(1))
    assert log.ran == [1, 2, 3]


async def test_no_more_wait_than_may() -> None:
    operations, log = queue(max_waiting=1), Log()
    go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        await started(group, operations.run(1, log.operation(1, wait=go)))
        await started(group, operations.run(2, log.operation(2)))
        with pytest.raises(RequestFailedError, match="1 operations of m wait, which is the limit"):
            await operations.run(3, log.operation(3))
        go.set()
    assert await operations.run(3, log.operation(3)) == 30


async def test_closing_fails_what_waits_and_what_comes() -> None:
    operations, log = queue(), Log()
    waiting = asyncio.ensure_future(operations.run(2, log.operation(2)))
    await asyncio.sleep(0)
    operations.close()
    with pytest.raises(RequestFailedError, match="model m was unloaded"):
        await waiting
    with pytest.raises(RequestFailedError, match="model m was unloaded"):
        await operations.run(1, log.operation(1))
    assert log.ran == []
