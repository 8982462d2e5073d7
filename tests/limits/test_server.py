"""The service that shares limits, spoken to over plain sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.config import RateLimitConfig
from reward_loop.errors import ConfigError
from reward_loop.limits.client import SharedLimiter
from reward_loop.limits.server import LimitServer
from reward_loop.limits.wire import MAX_LINE, encode


class Caller:
    """A client that says whatever a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, *lines: bytes) -> None:
        self._writer.write(b"".join(lines))

    async def hear(self) -> dict[str, Any]:
        """What the server says next; empty when it has hung up."""
        async with asyncio.timeout(10.0):
            try:
                line = await self._reader.readline()
            except ConnectionError:
                return {}
        message: dict[str, Any] = json.loads(line or b"{}")
        return message

    def hang_up(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def caller(server: LimitServer) -> AsyncGenerator[Caller]:
    host, port = server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


def greeting(name: str = "job", token: str = "", **limits: object) -> bytes:
    return encode(name=name, limits=limits, token=token)


async def welcomed(caller: Caller, *lines: bytes, **limits: object) -> None:
    caller.say(greeting(**limits), *lines)  # type: ignore[arg-type]
    assert await caller.hear() == {"welcome": True}


async def test_a_client_is_welcomed_and_its_requests_go() -> None:
    async with LimitServer() as server, caller(server) as client:
        await welcomed(client, encode(ask=7, tokens=None), encode(ask=8, tokens=10), max_rpm=600)
        assert [await client.hear(), await client.hear()] == [{"go": 7}, {"go": 8}]


async def test_requests_of_many_connections_go_in_the_order_in_which_they_asked() -> None:
    async with LimitServer() as server, asyncio.TaskGroup() as tasks:
        went: list[int] = []

        async def go(client: Caller, number: int) -> None:
            assert await client.hear() == {"go": number}
            went.append(number)
            client.say(encode(leave=number))

        async with _many(server, 20) as clients:
            waiting = []
            for number, client in enumerate(clients):
                await welcomed(client, encode(ask=number, tokens=(number * 17) % 50), max_concurrent=1, max_tpm=6_000_000)
                waiting.append(tasks.create_task(go(client, number)))
            await asyncio.wait(waiting)
        assert went == list(range(20))


@asynccontextmanager
async def _many(server: LimitServer, number: int) -> AsyncGenerator[list[Caller]]:
    if not number:
        yield []
        return
    async with caller(server) as first, _many(server, number - 1) as others:
        yield [first, *others]


async def test_a_connection_that_ends_gives_back_what_it_holds_and_leaves_the_line() -> None:
    async with LimitServer() as server, caller(server) as holder, caller(server) as other:
        await welcomed(holder, *(encode(ask=number, tokens=None) for number in range(5)), max_concurrent=2)
        assert [await holder.hear(), await holder.hear()] == [{"go": 0}, {"go": 1}]
        await welcomed(other, *(encode(ask=number, tokens=None) for number in range(2)), max_concurrent=2)
        holder.hang_up()
        assert [await other.hear(), await other.hear()] == [{"go": 0}, {"go": 1}]


async def test_what_is_declared_as_held_takes_a_place() -> None:
    async with LimitServer() as server, caller(server) as client:
        await welcomed(client, encode(held=1), encode(ask=2, tokens=None), encode(leave=1), max_concurrent=1)
        assert await client.hear() == {"go": 2}


GARBAGE = [
    b"\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 100 + b"\n",
    b"x" * (MAX_LINE + 1),
    encode(ask="7", tokens=1),
    encode(ask=7, tokens=-1),
    encode(ask=7, tokens=10**30),
    encode(ask=7),
    encode(ask=1, tokens=1),  # 1 has asked already
    encode(held=1),
    encode(used=1, tokens=None),
    encode(throttled=1, after=-1.0),
    b'{"throttled":1,"after":1e999}\n',
    b'{"throttled":1,"after":NaN}\n',
    encode(dance=True),
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_what_is_not_understood_costs_only_its_own_connection(garbage: bytes) -> None:
    async with LimitServer() as server, caller(server) as good, caller(server) as bad:
        await welcomed(good, max_concurrent=2)
        await welcomed(bad, encode(ask=1, tokens=None), max_concurrent=2)
        assert await bad.hear() == {"go": 1}
        bad.say(garbage)
        refusal = await bad.hear()
        assert refusal["kind"] == "WireError"
        assert len(refusal["refused"]) < 500
        assert await bad.hear() == {}
        good.say(encode(ask=1, tokens=None), encode(ask=2, tokens=None))
        assert [await good.hear(), await good.hear()] == [{"go": 1}, {"go": 2}]


@pytest.mark.parametrize(
    "first", [encode(ask=1, tokens=None), encode(name="job"), encode(name=1, limits={}, token=""), b"hello\n"]
)
async def test_a_client_that_does_not_greet_is_refused(first: bytes) -> None:
    async with LimitServer() as server, caller(server) as client:
        client.say(first)
        assert (await client.hear())["kind"] == "WireError"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
WORDS = st.sampled_from(["name", "limits", "token", "ask", "tokens", "used", "leave", "held"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(WORDS, ANYTHING | st.integers(0, 3), max_size=3), max_size=10))
def test_no_sequence_of_messages_harms_another_connection(messages: list[dict[str, object]]) -> None:
    async def talk() -> None:
        async with LimitServer() as server, caller(server) as good, caller(server) as wild:
            await welcomed(good, max_concurrent=2)
            wild.say(greeting(max_concurrent=2), *(encode(**message) for message in messages))
            assert await wild.hear() == {"welcome": True}
            wild.hang_up()
            good.say(encode(ask=1, tokens=None), encode(ask=2, tokens=None))
            assert [await good.hear(), await good.hear()] == [{"go": 1}, {"go": 2}]

    asyncio.run(talk())


async def test_settings_that_can_not_be_are_refused_with_the_reason() -> None:
    async with LimitServer() as server, caller(server) as client:
        client.say(greeting(max_rpm=-3))
        refusal = await client.hear()
        assert refusal["kind"] == "ConfigError"
        assert "max_rpm" in refusal["refused"]


@pytest.mark.parametrize("token", ["", "wrong", "sëcret", "\ud800"])
async def test_a_client_without_the_token_is_refused(token: str) -> None:
    async with LimitServer(token="secret") as server, caller(server) as client:
        client.say(greeting(token=token))
        refusal = await client.hear()
        assert refusal["kind"] == "ConfigError"
        assert "secret" not in refusal["refused"]


async def test_the_token_lets_a_client_in() -> None:
    async with LimitServer(token="sëcret") as server:
        limiter = SharedLimiter(RateLimitConfig(), name="job", address=server.address, token="sëcret")
        async with limiter.reserve():
            pass
        await limiter.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "", "::"])
def test_other_machines_are_not_served_without_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        LimitServer(host)


async def test_limits_of_different_names_do_not_touch() -> None:
    async with LimitServer() as server, caller(server) as one, caller(server) as other:
        one.say(greeting("one", max_concurrent=1), encode(ask=1, tokens=None))
        other.say(greeting("other", max_concurrent=2), encode(ask=1, tokens=None))
        assert [await one.hear(), await one.hear()] == [{"welcome": True}, {"go": 1}]
        assert [await other.hear(), await other.hear()] == [{"welcome": True}, {"go": 1}]


async def test_whoever_comes_with_other_settings_is_refused_and_told_both() -> None:
    async with LimitServer() as server:
        first = SharedLimiter(RateLimitConfig(max_rpm=60), name="job", address=server.address)
        late = SharedLimiter(RateLimitConfig(max_rpm=61), name="job", address=server.address)
        async with first.reserve():
            with pytest.raises(ConfigError, match=r"'job' is in use with max_rpm=60\.0.*this process wants max_rpm=61\.0"):
                async with late.reserve():
                    pass
        await first.close()
        await late.close()


async def test_an_ipv6_address_is_written_so_that_it_can_be_read() -> None:
    try:
        async with LimitServer("::1") as server:
            limiter = SharedLimiter(RateLimitConfig(), name="job", address=server.address)
            async with limiter.reserve():
                pass
            await limiter.close()
    except OSError:
        pytest.skip("this machine has no IPv6")
