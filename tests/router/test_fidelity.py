"""What goes through comes out as it went in: bodies, headers, statuses, streams and their timing."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.router.upstreams import Asked, Router, answers, closed, echoes, reply, router, says, server

HEAD = b"POST /score?x=1&y=%2F HTTP/1.1\r\nHost: reward\r\n"


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def cut_at(body: bytes, sizes: list[int]) -> list[bytes]:
    """A body in pieces of these sizes, and what is left."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(body[start : start + size])
        start += size
    return [piece for piece in [*pieces, body[start:]] if piece]


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary(max_size=5000),
    st.integers(1, 60),
    st.lists(st.integers(1, 900), max_size=8),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 4000), max_size=5),
)
def test_bodies_are_exact_however_they_are_framed_and_cut(
    seed: bytes, times: int, sizes: list[int], asks_chunked: bool, answers_chunked: bool, reads: list[int]
) -> None:
    body = seed * times
    asyncio.run(passes(body, sizes, asks_chunked, answers_chunked, reads))


async def passes(body: bytes, sizes: list[int], asks_chunked: bool, answers_chunked: bool, reads: list[int]) -> None:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        raw = reply(asked.body)
        if answers_chunked:
            raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(cut_at(asked.body, sizes))
        for piece in cut_at(raw, reads):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return True

    async with server(behave) as one, router(one) as running:
        data = streamed(cut_at(body, sizes)) if asks_chunked else body
        for _ in range(2):  # the second time over connections, and heads, that are known
            async with running.session.post(
                running.base + "/score", data=data if not asks_chunked else streamed(cut_at(body, sizes))
            ) as got:
                assert got.status == 200
                assert digest(await got.read()) == digest(body)
            assert digest(one.asked[-1].body) == digest(body)


async def streamed(pieces: list[bytes]):  # type: ignore[no-untyped-def]
    for piece in pieces:
        yield piece


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 65_536, 300_000, 1 << 20, (1 << 20) + 1, 5_000_000])
async def test_bodies_of_all_sizes_are_exact_both_ways(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    async with server(echoes) as one, router(one) as running:
        for _ in range(3):
            status, got = await running.ask(body)
            assert (status, digest(got)) == (200, digest(body))
        assert one.asked[0].header("content-length") == str(size)
        assert one.asked[0].header("transfer-encoding") is None


async def test_target_method_and_headers_arrive_as_they_were_sent() -> None:
    async with server() as one, router(one) as running:
        await running.raw(HEAD + b"X-Odd:  a b \r\nX-ODD: two\r\naccept: */*\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        asked = one.asked[0]
        assert (asked.method, asked.target, asked.body) == ("POST", "/score?x=1&y=%2F", b"{}")
        assert asked.headers[:5] == [
            ("Host", "reward"),
            ("X-Odd", "a b"),
            ("X-ODD", "two"),
            ("accept", "*/*"),
            ("Content-Length", "2"),
        ]
        assert [name for name, _ in asked.headers[5:]] == ["X-Request-Id"]


async def test_an_id_that_the_client_gave_is_kept() -> None:
    async with server() as one, router(one) as running:
        for number in range(3):
            await running.ask(headers={"X-Request-Id": f"mine-{number}"})
        assert [asked.header("x-request-id") for asked in one.asked] == ["mine-0", "mine-1", "mine-2"]


async def test_ids_that_the_router_gives_differ() -> None:
    async with server() as one, router(one) as running:
        for _ in range(5):
            await running.ask()
        assert len({asked.header("x-request-id") for asked in one.asked}) == 5


async def test_headers_that_end_at_a_hop_end_here() -> None:
    raw = reply(b"ok", headers="X-Kept: 1\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 2\r\nKeep-Alive: timeout=5\r\nTE: x\r\n")
    request = HEAD + b"Connection: close, X-Private\r\nX-Private: 1\r\nTE: trailers\r\nKeep-Alive: 3\r\nX-Public: 2\r\n\r\n"
    async with server(says(raw)) as one, router(one) as running:
        said = await running.raw(request)
        assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Kept: 1\r\nConnection: close\r\n\r\nok"
        assert {name for name, _ in one.asked[0].headers} == {"Host", "X-Public", "X-Request-Id"}


@pytest.mark.parametrize("status", [200, 201, 204, 304, 400, 401, 404, 418, 422, 500])
async def test_statuses_reasons_and_headers_come_back_as_they_were_sent(status: int) -> None:
    body = b"" if status in (204, 304) else b"said"
    raw = reply(body, status, "X-A: 1\r\nX-A: 2\r\n", "Just So")
    async with server(says(raw)) as one, router(one) as running:
        for _ in range(2):
            async with running.session.post(running.base + "/score", data=b"{}") as got:
                assert (got.status, got.reason, await got.read()) == (status, "Just So", body)
                assert got.headers.getall("X-A") == ["1", "2"]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_all_methods_go_through(method: str) -> None:
    async with server() as one, router(one) as running:
        assert await running.ask(None, "/v1/models", method) == (200, b"ok")
        assert (one.asked[0].method, one.asked[0].target) == (method, "/v1/models")


async def test_the_reply_to_a_head_request_has_a_length_and_no_body() -> None:
    async with server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as one, router(one) as running:
        for _ in range(3):
            async with running.session.head(running.base + "/health") as got:
                assert (got.status, got.headers["Content-Length"], await got.read()) == (200, "1000", b"")
        one.behave = says(reply(b"x" * 1000))
        assert await running.ask() == (200, b"x" * 1000)


async def test_a_body_is_asked_for_where_the_client_waits_to_be_asked() -> None:
    async with server(echoes) as one, router(one) as running:
        reader, writer = await asyncio.open_connection(running.host, running.port)
        writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.read()).endswith(b"\r\n\r\nbody")
        assert one.asked[0].header("expect") is None
        await closed(writer)


async def test_interim_replies_are_passed_on_and_are_no_reply() -> None:
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply(b"ok")
    async with server(says(raw)) as one, router(one) as running:
        said = await running.raw(HEAD + b"Connection: close\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n")
        for _ in range(3):
            assert await running.ask() == (200, b"ok")


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.05 if asked.target == "/0" else 0)
        writer.write(reply(asked.target.encode()))
        return True

    async with server(behave) as one, server(behave) as two, router(one, two) as running:
        requests = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(50)]
        said = await running.raw(b"".join(requests) + b"GET /50 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [part.rpartition(b"/")[2] for part in said.split(b"HTTP/1.1 200 OK")[1:]] == [b"%d" % n for n in range(51)]


async def test_one_connection_serves_many_requests() -> None:
    async with server() as one, router(one) as running:
        for _ in range(20):
            await running.ask()
        assert one.connections == 1


async def test_an_old_client_gets_what_it_understands() -> None:
    stream = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    )
    async with server(says(stream)) as one, router(one) as running:
        said = await running.raw(b"GET /stream HTTP/1.0\r\n\r\n")
        assert said == b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nabcd"
        one.behave = answers()
        said = await running.raw(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n")
        assert [said.count(part) for part in (b"200 OK", b"Connection: keep-alive", b"Connection: close")] == [2, 1, 1]


async def test_a_json_reply_in_chunks_is_held_and_gets_a_length() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked([b"[1,", b"2]"])
    async with server(says(raw)) as one, router(one) as running:
        said = await running.raw(HEAD + b"Connection: close\r\n\r\n")
        assert said.endswith(b"Content-Length: 5\r\nConnection: close\r\n\r\n[1,2]")


async def events(running: Router, count: int) -> list[float]:
    async with running.session.post(running.base + "/v1/chat/completions", data=b"{}") as got:
        assert got.headers["Content-Type"] == "text/event-stream"
        times = [time.monotonic() async for line in got.content if line.startswith(b"data")]
        assert len(times) == count
        return times


async def test_events_arrive_when_they_are_sent() -> None:
    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(4):
            event = b"data: %d\n\n" % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(0.15)
        writer.write(b"0\r\n\r\n")
        return True

    async with server(behave) as one, router(one) as running:
        times = await events(running, 4)
        assert all(later - earlier > 0.05 for earlier, later in pairwise(times))


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", "Content-Length: 50000000", "X-Until: closed"])
async def test_a_stream_that_is_cut_is_cut_for_the_client_too(framing: str) -> None:
    begin = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n".encode()
    piece = b"x" * 65_536

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(begin)
        for _ in range(100):
            writer.write(b"10000\r\n%b\r\n" % piece if "chunked" in framing else piece)
            await writer.drain()
        reset = writer.get_extra_info("socket")
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False

    async with server(behave) as one, router(one) as running:
        reader, writer = await asyncio.open_connection(running.host, running.port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 20)
        await closed(writer)
        assert len(one.asked) == 1


async def test_a_client_that_reads_slowly_slows_the_server_down() -> None:
    sent = 0

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
        for _ in range(1024):
            writer.write(b"y" * 65_536)
            await writer.drain()
            sent += 65_536
        return True

    async with server(behave) as one, router(one) as running:
        reader, writer = await asyncio.open_connection(running.host, running.port, limit=65_536)
        writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        await one.was_asked.wait()
        before = -1
        while sent != before or not sent:  # until it stands still
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 48 << 20
        await reader.readuntil(b"\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(64 << 20), 60) == b"y" * (64 << 20)
        await closed(writer)


async def test_it_works_over_ipv6() -> None:
    async with server() as one, router(one, host="::1") as running:
        assert await running.ask() == (200, b"ok")


async def test_what_the_servers_token_is_no_client_needs_to_know() -> None:
    async with server() as one, router(one, token="in", server_token="out") as running:
        status, _ = await running.ask()
        assert status == 401
        for _ in range(2):
            assert (await running.ask(headers={"Authorization": "Bearer in"}))[0] == 200
        assert (await running.ask(headers={"Authorization": "Bearer inn"}))[0] == 401
        assert [asked.header("authorization") for asked in one.asked] == ["Bearer out"] * 2


async def test_a_clients_token_is_passed_on_where_the_servers_have_none_of_their_own() -> None:
    async with server() as one, router(one) as running:
        await running.ask(headers={"Authorization": "Bearer mine"})
        assert one.asked[0].header("authorization") == "Bearer mine"


async def test_a_large_body_ends_where_it_ends() -> None:
    body = bytes(range(251)) * 1000
    request = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    last = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with server() as one, router(one) as running:
        said = await running.raw(request + request + last)
        assert said.count(b"HTTP/1.1 200 OK") == 3
        assert [(asked.target, digest(asked.body)) for asked in one.asked] == [
            ("/score", digest(body)),
            ("/score", digest(body)),
            ("/last", digest(b"")),
        ]


async def test_a_known_reply_still_says_that_the_connection_ends() -> None:
    async with server() as one, router(one) as running:
        said = [await running.raw(HEAD + b"Connection: close\r\n\r\n") for _ in range(3)]
        assert said == [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"] * 3


async def test_known_heads_with_other_bodies_are_other_requests() -> None:
    async with server(echoes) as one, router(one) as running:
        for number in range(30):
            body = b"x" * (number % 3)
            assert await running.ask(body) == (200, body)


async def test_a_client_that_takes_no_answers_is_not_answered_without_end() -> None:
    async with server(says(reply(b"z" * 1_000_000))) as one, router(one) as running:
        reader, writer = await asyncio.open_connection(running.host, running.port, limit=65_536)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
        before = -1
        while len(one.asked) != before or not before:  # until it stands still
            before = len(one.asked)
            await asyncio.sleep(0.3)
        assert before < 100
        total = 300 * len(reply(b"z" * 1_000_000))
        assert len(await asyncio.wait_for(reader.readexactly(total), 60)) == total
        await closed(writer)
