from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence

import pytest

from reward_loop.functions.side_thread import SideThread


class Doubling:
    """Doubles numbers, one batch per `step`; refuses negative ones."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.begun.release()
        assert self.go.acquire(timeout=60)
        self.batches.append(list(numbers))
        self.threads.add(threading.get_ident())
        return [ValueError(f"{number} is negative") if number < 0 else 2 * number for number in numbers]


async def begun(work: Doubling) -> None:
    assert await asyncio.to_thread(work.begun.acquire, True, 60)


async def test_what_is_asked_while_it_works_goes_together_next() -> None:
    work = Doubling()
    double = SideThread(work, max_batch=4)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double(0))]
        await begun(work)
        tasks += [group.create_task(double(number)) for number in range(1, 7)]
        await asyncio.sleep(0)
        for _ in range(3):
            work.go.release()
    assert [task.result() for task in tasks] == [0, 2, 4, 6, 8, 10, 12]
    assert work.batches == [[0], [1, 2, 3, 4], [5, 6]]
    assert len(work.threads) == 1
    assert threading.get_ident() not in work.threads


async def test_a_bad_item_fails_alone() -> None:
    work = Doubling()
    double = SideThread(work)
    work.go.release(5)
    results = await asyncio.gather(double(1), double(-1), double(2), return_exceptions=True)
    assert [results[0], results[2]] == [2, 4]
    assert isinstance(results[1], ValueError)


async def test_work_that_breaks_down_fails_those_of_its_batch_only() -> None:
    def broken_once(items: Sequence[str]) -> list[str | Exception]:
        if "bad" in items:
            raise RuntimeError("no tokenizer")
        return list(items)

    thread = SideThread(broken_once)
    with pytest.raises(RuntimeError, match="no tokenizer"):
        await thread("bad")
    assert await thread("good") == "good"


async def test_what_nobody_waits_for_any_more_is_not_worked_off() -> None:
    work = Doubling()
    double = SideThread(work)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(double(1))
        await begun(work)
        given_up, kept = group.create_task(double(2)), group.create_task(double(3))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        work.go.release(2)
    assert (first.result(), kept.result(), given_up.cancelled()) == (2, 6, True)
    assert work.batches == [[1], [3]]


def test_it_serves_one_event_loop_after_the_other() -> None:
    thread: SideThread[int, int] = SideThread(lambda items: list(items))
    assert [asyncio.run(thread(number)) for number in range(3)] == [0, 1, 2]


async def test_the_thread_ends_with_the_object() -> None:
    thread: SideThread[None, threading.Thread] = SideThread(lambda items: [threading.current_thread() for _ in items])
    worker = await thread(None)
    del thread
    gc.collect()
    await asyncio.to_thread(worker.join, 60)
    assert not worker.is_alive()
