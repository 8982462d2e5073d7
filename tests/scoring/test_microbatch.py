"""Samples that are asked for one by one travel together, and none of them pays for another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
import uvloop

from reward_loop.deadline import within
from reward_loop.errors import RequestRejected, RewardTimeout, ServerUnavailable
from reward_loop.limits.current import current_reservation, under
from reward_loop.scoring.isolate import Refusal
from reward_loop.scoring.microbatch import MicroBatcher
from reward_loop.scoring.window import Window
from tests.limits.booked import Booked

WINDOW = Window(max_batch=8, max_wait_s=0.005, max_in_flight=2)


class Server:
    """Answers batches with ten times their numbers, once `open`; -1 is a bad input."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.was_asked = asyncio.Event()
        self.in_flight = 0
        self.most_in_flight = 0
        self.given_up = 0

    async def __call__(self, inputs: Sequence[int], until: float) -> Sequence[int] | Refusal:
        assert until > asyncio.get_running_loop().time()
        assert current_reservation() is None
        self.asked.append(list(inputs))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.was_asked.set()
        try:
            await asyncio.sleep(0)
            await self.open.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.in_flight -= 1
        if -1 in inputs:
            return Refusal(RequestRejected("a bad input", 400), {inputs.index(-1): RequestRejected("this one is bad", 400)})
        return [each * 10 for each in inputs]


def batcher(server: Server, window: Window = WINDOW) -> MicroBatcher[int, int]:
    return MicroBatcher(server, window, timeout_s=30.0)


async def test_samples_that_are_asked_for_together_travel_together() -> None:
    server = Server()
    ask = batcher(server).ask
    assert await asyncio.gather(*map(ask, range(5))) == [0, 10, 20, 30, 40]
    assert server.asked == [[0, 1, 2, 3, 4]]


async def test_a_batch_has_a_largest_size_and_there_are_never_too_many() -> None:
    server = Server()
    ask = batcher(server).ask
    assert await asyncio.gather(*map(ask, range(100))) == [number * 10 for number in range(100)]
    assert max(map(len, server.asked)) == 8
    assert server.most_in_flight == 2


async def test_a_sample_that_comes_alone_does_not_wait_for_others() -> None:
    server = Server()
    long = batcher(server, Window(max_wait_s=1000.0))
    assert await asyncio.wait_for(long.ask(1), 30.0) == 10


async def test_samples_that_come_while_a_batch_is_under_way_travel_in_the_next() -> None:
    server = Server()
    server.open.clear()
    long = batcher(server, Window(max_batch=8, max_wait_s=1000.0))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(long.ask(0))
        await server.was_asked.wait()
        others = [group.create_task(long.ask(number)) for number in range(1, 5)]
        await asyncio.sleep(0)
        server.open.set()
    assert [first.result(), *[other.result() for other in others]] == [0, 10, 20, 30, 40]
    assert server.asked == [[0], [1, 2, 3, 4]]


async def test_they_wait_no_longer_than_the_window_while_another_batch_is_under_way() -> None:
    server = Server()
    server.open.clear()
    short = batcher(server)
    async with asyncio.TaskGroup() as group:
        group.create_task(short.ask(0))
        await server.was_asked.wait()
        server.was_asked.clear()
        group.create_task(short.ask(1))
        await asyncio.wait_for(server.was_asked.wait(), 30.0)
        assert server.in_flight == 2
        server.open.set()


async def test_a_bad_sample_fails_alone() -> None:
    results = await asyncio.gather(*map(batcher(Server()).ask, [1, -1, 2, -1]), return_exceptions=True)
    assert [results[0], results[2]] == [10, 20]
    assert [str(results[1]), str(results[3])] == ["this one is bad"] * 2


@pytest.mark.parametrize("error", [ServerUnavailable("gone"), ZeroDivisionError("a bug")])
async def test_what_fails_a_batch_reaches_everyone_who_waits(error: Exception) -> None:
    async def send(inputs: Sequence[int], until: float) -> Sequence[int] | Refusal:
        raise error

    asking = MicroBatcher(send, WINDOW, 30.0).ask
    results = await asyncio.gather(*map(asking, range(20)), return_exceptions=True)
    assert {str(result) for result in results} == {str(error)}
    assert {type(result) for result in results} == {type(error)}


async def test_each_caller_gets_an_error_of_its_own() -> None:
    async def send(inputs: Sequence[int], until: float) -> Sequence[int] | Refusal:
        raise ServerUnavailable("gone")

    asking = MicroBatcher(send, WINDOW, 30.0).ask
    first, second = await asyncio.gather(asking(1), asking(2), return_exceptions=True)
    assert isinstance(first, ServerUnavailable)
    assert isinstance(second, ServerUnavailable)
    first.sample = "1"
    assert second.sample is None


async def test_a_caller_that_goes_before_its_turn_is_not_sent() -> None:
    server = Server()
    server.open.clear()
    one = batcher(server, Window(max_batch=8, max_wait_s=1000.0))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(one.ask(0))
        await server.was_asked.wait()
        gone, stays = group.create_task(one.ask(1)), group.create_task(one.ask(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        server.open.set()
    assert gone.cancelled()
    assert (first.result(), stays.result()) == (0, 20)
    assert server.asked == [[0], [2]]


async def test_a_caller_that_goes_does_not_take_its_batch_along() -> None:
    server = Server()
    server.open.clear()
    one = batcher(server)
    async with asyncio.TaskGroup() as group:
        gone, stays = group.create_task(one.ask(1)), group.create_task(one.ask(2))
        await server.was_asked.wait()
        gone.cancel()
        await asyncio.wait([gone])
        server.open.set()
    assert stays.result() == 20
    assert server.given_up == 0


async def test_a_batch_that_nobody_waits_for_is_given_up() -> None:
    server = Server()
    server.open.clear()
    one = batcher(server)
    asking = [asyncio.create_task(one.ask(number)) for number in range(3)]
    await server.was_asked.wait()
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)
    await one.drained()
    assert server.given_up == 1


async def test_the_wait_for_a_turn_does_not_count_towards_the_deadline() -> None:
    server = Server()
    server.open.clear()
    one = batcher(server, Window(max_batch=1, max_in_flight=1))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(one.ask(1))
        await server.was_asked.wait()
        second = group.create_task(within(one.ask(2), 0.2))
        await asyncio.wait([second], timeout=0.4)
        assert not second.done()
        server.open.set()
    assert (first.result(), second.result()) == (10, 20)


async def test_being_worked_on_counts_towards_the_deadline() -> None:
    server = Server()
    server.open.clear()
    with pytest.raises(RewardTimeout):
        await within(batcher(server).ask(1), 0.1)


async def test_a_batch_is_nobodys_request_to_the_limit() -> None:
    with under(Booked()):
        assert await batcher(Server()).ask(1) == 10  # the server looks whether it sees a reservation


async def test_when_nobody_asks_nothing_runs() -> None:
    one = batcher(Server())
    await asyncio.gather(*map(one.ask, range(50)))
    await one.drained()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_it_starts_again_whenever_someone_asks() -> None:
    one, dice = batcher(Server()), random.Random(0)

    async def caller(number: int) -> None:
        for turn in range(20):
            assert await one.ask(number + turn) == (number + turn) * 10
            for _ in range(dice.randrange(5)):
                await asyncio.sleep(0)

    async with asyncio.timeout(60.0), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(caller(number))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_loop_that_shuts_down_leaves_nothing_behind(run: Any) -> None:
    async def main() -> tuple[Server, asyncio.Task[int], asyncio.Task[int]]:
        server = Server()
        server.open.clear()
        one = batcher(server, Window(max_batch=1, max_in_flight=1))
        sent = asyncio.create_task(one.ask(1))
        await server.was_asked.wait()
        queued = asyncio.create_task(one.ask(2))
        await asyncio.sleep(0)
        return server, sent, queued

    server, sent, queued = run(main())
    assert server.given_up == 1
    assert sent.cancelled()
    assert queued.cancelled()
