"""The gate that closes while weights are exchanged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.reply import Refusal

PATIENCE_S = 20.0


async def settled() -> None:
    """Let every task go on until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def computing(gate: Gate) -> AsyncGenerator[asyncio.Event]:
    """A request that is in flight until the event is set, or the block ends."""
    end, begun = asyncio.Event(), asyncio.Event()

    async def compute() -> None:
        async with gate.passed():
            begun.set()
            await end.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(compute())
        await begun.wait()
        try:
            yield end
        finally:
            end.set()


async def entered(gate: Gate) -> None:
    async with gate.passed():
        pass


async def controlled(gate: Gate) -> None:
    async with gate.controlled():
        pass


async def test_what_is_in_flight_ends_before_it_closes_and_what_is_new_waits_until_it_opens() -> None:
    gate, exchanged = Gate(), asyncio.Event()
    async with asyncio.TaskGroup() as group, computing(gate) as end:

        async def exchange() -> int:
            async with gate.closed(PATIENCE_S):
                await exchanged.wait()
                return gate.in_flight

        closing = group.create_task(exchange())
        await settled()
        new = group.create_task(entered(gate))
        await settled()
        assert not closing.done()
        end.set()
        await settled()
        assert not new.done()
        exchanged.set()
        assert await closing == 0
        await new


async def test_a_drain_that_takes_too_long_says_how_many_are_in_flight_and_opens_again() -> None:
    gate = Gate()
    async with computing(gate), computing(gate):
        with pytest.raises(Refusal, match=r"2 requests were still in flight after drain_timeout_s=0.01") as caught:
            async with gate.closed(0.01):
                raise AssertionError
        assert (caught.value.status, caught.value.kind) == (503, "not_drained")
        await entered(gate)


async def test_it_opens_again_whatever_happens_while_it_is_closed() -> None:
    gate = Gate()
    with pytest.raises(KeyError):
        async with gate.closed(PATIENCE_S):
            raise KeyError
    await entered(gate)


async def test_a_cancelled_drain_opens_it() -> None:
    gate = Gate()

    async def exchange() -> None:
        async with gate.closed(PATIENCE_S):
            raise AssertionError

    async with computing(gate):
        task = asyncio.create_task(exchange())
        await settled()
        task.cancel()
        await asyncio.wait([task])
        await entered(gate)


async def test_a_drain_can_be_given_up_with_a_reason_a_closed_gate_can_not() -> None:
    gate = Gate()

    async def exchange() -> None:
        async with gate.closed(PATIENCE_S):
            gate.give_up(Refusal(409, "aborted", "too late"))

    async with computing(gate):
        task = asyncio.create_task(exchange())
        await settled()
        gate.give_up(Refusal(409, "aborted", "the trainer aborted"))
        with pytest.raises(Refusal, match="the trainer aborted"):
            await task
    await exchange()


async def test_the_engine_may_be_resumed_during_a_drain_but_not_during_an_exchange() -> None:
    gate, exchanged = Gate(), asyncio.Event()

    async def exchange() -> None:
        async with gate.closed(PATIENCE_S):
            await exchanged.wait()

    async with asyncio.TaskGroup() as group, computing(gate) as end:
        group.create_task(exchange())
        await settled()
        await controlled(gate)
        end.set()
        await settled()
        late = group.create_task(controlled(gate))
        await settled()
        assert not late.done()
        exchanged.set()


async def test_a_sleep_that_was_told_first_ends_before_it_closes() -> None:
    gate, slept = Gate(), asyncio.Event()

    async def sleep() -> None:
        async with gate.controlled():
            await slept.wait()

    async def exchange() -> None:
        async with gate.closed(PATIENCE_S):
            pass

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep())
        await settled()
        closing = group.create_task(exchange())
        await settled()
        assert not closing.done()
        slept.set()


async def test_two_can_not_close_it() -> None:
    gate = Gate()
    async with gate.closed(PATIENCE_S):
        with pytest.raises(RuntimeError, match="closed already"):
            async with gate.closed(PATIENCE_S):
                raise AssertionError
