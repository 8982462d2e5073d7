"""Bodies that come in parts, too large or not at all, and senders who do not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.serving.inside.exchange import MAX_BODY_BYTES, HungUp, Message, Receive, body_of, replayed, unless_hung_up
from reward_loop.serving.inside.reply import Refusal


def parts(*bodies: bytes) -> list[Message]:
    """Return a body that comes in these parts."""
    return [{"type": "http.request", "body": body, "more_body": at < len(bodies) - 1} for at, body in enumerate(bodies)]


def receiving(messages: Iterable[Message]) -> Receive:
    """Return a `receive` that gives these messages, then waits for ever."""
    left = iter(messages)

    async def receive() -> Message:
        for message in left:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    return receive


HANG_UP: Message = {"type": "http.disconnect"}


@given(st.lists(st.binary(), min_size=1))
async def test_a_body_is_the_same_whole_and_replayed(bodies: list[bytes]) -> None:
    whole = await body_of(receiving(parts(*bodies)))
    assert whole == b"".join(bodies)
    again = replayed(whole, receiving([HANG_UP]))
    assert await body_of(again) == whole
    assert await again() == HANG_UP


async def test_a_body_that_is_too_large_is_refused_before_it_is_all_there() -> None:
    endless = ({"type": "http.request", "body": b"x" * 2**20, "more_body": True} for _ in iter(int, 1))
    with pytest.raises(Refusal, match=str(MAX_BODY_BYTES)) as caught:
        await body_of(receiving(endless))
    assert caught.value.status == 413


async def test_a_sender_who_hangs_up_half_way_is_noticed() -> None:
    with pytest.raises(HungUp):
        await body_of(receiving([{"type": "http.request", "body": b"half", "more_body": True}, HANG_UP]))


async def test_work_gives_its_result_while_the_sender_waits() -> None:
    assert await unless_hung_up(asyncio.sleep(0, "done"), receiving([])) == "done"


async def test_work_is_cancelled_when_the_sender_hangs_up() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(HungUp):
        await unless_hung_up(work(), receiving([HANG_UP]))
    assert ended == ["cancelled"]


async def test_an_error_of_the_work_is_raised_as_it_is() -> None:
    async def work() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError):
        await unless_hung_up(work(), receiving([]))
