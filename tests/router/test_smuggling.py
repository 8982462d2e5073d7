"""Requests that mean one thing to one reader and another to the next are refused, and reach nobody."""

from __future__ import annotations

import pytest

from tests.router.upstreams import answers, reply, router, says, server

ATTEMPTS = {
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "two equal lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 2\r\n\r\n{}",
    "a signed length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}",
    "a negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
    "a hexadecimal length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}",
    "a length beyond all bounds": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "a coding that is none": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked but not last": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}",
    "a folded header": b"POST / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n Content-Length: 2\r\n\r\n",
    "a NUL in a header": b"POST / HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a bare CR in a header": b"POST / HTTP/1.1\r\nHost: x\r\nX-A: a\rContent-Length: 2\r\n\r\n{}",
    "bare line feeds": b"POST / HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
    "a chunk size that overflows": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff1\r\n{}",
    "a chunk size that is none": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than it says": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "another version": b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n",
    "another target": b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a line feed in the target": b"GET /a\nb HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
async def test_it_is_refused(attempt: bytes) -> None:
    async with server() as one, router(one) as running:
        said = await running.raw(attempt)
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert said.count(b"\r\nX-Reward-Router: bad_request\r\n") == 1
        assert b"Connection: close\r\n" in said
        assert one.asked == []


async def test_what_came_before_it_is_answered_first() -> None:
    good = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    async with server(answers("first")) as one, router(one) as running:
        said = await running.raw(good + ATTEMPTS["length and chunks"])
        first, _, second = said.partition(b"first")
        assert first.startswith(b"HTTP/1.1 200 OK")
        assert second.startswith(b"HTTP/1.1 400 Bad Request")
        assert len(one.asked) == 1


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"HTTP/1.1 200 OK\r\nX: ", b"garbage"])
async def test_a_server_that_says_more_than_its_reply_never_answers_the_next_request_with_it(extra: bytes) -> None:
    async with server() as one, router(one) as running:
        one.behave = says(reply(b"mine") + extra)
        for _ in range(5):
            assert await running.ask() == (200, b"mine")
        assert one.connections == 5
