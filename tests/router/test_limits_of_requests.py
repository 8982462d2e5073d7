"""What a client may not do, and what it is told then; and what happens when servers are full."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.router.upstreams import Asked, answers, closed, echoes, reply, router, server


def error_of(said: bytes) -> tuple[int, str]:
    """The status and the type of an error."""
    head, _, body = said.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert f"X-Reward-Router: {error['type']}".encode() in head
    assert int(head.split()[1]) == error["code"]
    return error["code"], error["type"]


async def test_a_body_beyond_the_limit_is_refused() -> None:
    async with server() as one, router(one, max_body_mb=1) as running:
        assert (await running.ask(b"x" * (1 << 20)))[0] == 200
        length = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n" + b"x" * 1_048_577
        assert error_of(await running.raw(length)) == (413, "too_large")
        chunk = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"20000\r\n%b\r\n" % (b"x" * 131_072) * 9
        assert error_of(await running.raw(chunk)) == (413, "too_large")
        assert len(one.asked) == 1


async def test_a_body_beyond_the_limit_is_not_even_asked_for() -> None:
    async with server() as one, router(one, max_body_mb=1) as running:
        said = await running.raw(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1048577\r\n\r\n")
        assert error_of(said) == (413, "too_large")


@pytest.mark.parametrize("beginning", [b"GET /", b"GET / HTTP/1.1\r\nX: "])
async def test_a_head_beyond_the_limit_is_refused(beginning: bytes) -> None:
    async with server() as one, router(one) as running:
        assert error_of(await running.raw(beginning + b"x" * 600_000)) == (431, "too_large")
        many = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(20_000)) + b"\r\n"
        assert error_of(await running.raw(many)) == (431, "too_large")
        assert one.asked == []


@pytest.mark.parametrize("beginning", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"])
async def test_a_client_that_dawdles_is_told_to_go(beginning: bytes) -> None:
    async with server() as one, router(one, head_timeout_s=0.3) as running:
        assert error_of(await running.raw(beginning)) == (408, "timeout")
        assert one.asked == []


async def test_a_connection_that_lies_idle_is_closed() -> None:
    async with server() as one, router(one, idle_timeout_s=0.2) as running:
        assert await running.raw(b"") == b""


async def test_a_full_queue_says_when_to_come_back() -> None:
    release = asyncio.Event()

    async def waits(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(b"ok"))
        return True

    async with server(waits) as one, router(one, max_in_flight=2, max_queue=3) as running:
        asking = [asyncio.create_task(running.ask()) for _ in range(5)]
        while running.server.fleet.pools["rm"].waiting < 3:  # noqa: ASYNC110 - the router tells nobody
            await asyncio.sleep(0.01)
        async with running.session.post(running.base + "/score", data=b"{}") as got:
            assert (got.status, got.headers["Retry-After"], got.headers["X-Reward-Router"]) == (429, "1", "queue_full")
        assert len(one.asked) == 2
        release.set()
        assert await asyncio.gather(*asking) == [(200, b"ok")] * 5
        assert (running.fleet.counters.queued, running.fleet.pools["rm"].waiting) == (3, 0)


async def test_no_server_gets_more_at_a_time_than_it_may() -> None:
    most = 0

    async def counts(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        nonlocal most
        most = max(most, sum(replica.in_flight for replica in running.fleet))
        await asyncio.sleep(0.01)
        writer.write(reply(b"ok"))
        return True

    async with server(counts) as one, server(counts) as two, router(one, two, max_in_flight=3) as running:
        assert set(await asyncio.gather(*(running.ask() for _ in range(60)))) == {(200, b"ok")}
        assert most == 6


async def test_whoever_waits_is_served_by_a_server_that_comes() -> None:
    async def never(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        return False

    async with server(never) as one, server() as two, router(one, max_in_flight=1) as running:
        stuck = asyncio.create_task(running.ask())
        await one.was_asked.wait()
        waiting = asyncio.create_task(running.ask())
        await asyncio.sleep(0)
        running.add(two)
        assert await waiting == (200, b"ok")
        stuck.cancel()
        await asyncio.wait({stuck})


async def test_whoever_waits_and_gives_up_leaves_the_queue() -> None:
    async def never(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        return False

    async with server(never) as one, router(one, max_in_flight=1) as running:
        first = asyncio.create_task(running.ask())
        await one.was_asked.wait()
        _, writer = await asyncio.open_connection(running.host, running.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        pool = running.fleet.pools["rm"]
        while not pool.waiting:  # noqa: ASYNC110 - the router tells nobody
            await asyncio.sleep(0.01)
        await closed(writer)
        while pool.waiting:  # noqa: ASYNC110 - the router tells nobody
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait({first})


async def test_waiting_counts_for_the_deadline() -> None:
    async def never(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        return False

    async with server(never) as one, router(one, max_in_flight=1, total_timeout_s=0.5) as running:
        answered = await asyncio.gather(running.ask(), running.ask())
        assert {status for status, _ in answered} == {504}
        assert running.fleet.counters.queued == 1


async def test_requests_go_to_the_servers_of_the_model_that_they_name() -> None:
    async with server(answers("a")) as one, server(answers("b")) as two, router(default_model="first") as running:
        running.add(one, model="first")
        running.add(two, model="second")
        assert await running.ask('{"model": "second", "input": "x"}') == (200, b"b")
        assert await running.ask('{"input": "\\"model\\": \\"second\\"", "model": "first"}') == (200, b"a")
        assert await running.ask('{"a": {"model": "second"}, "model": "first", "b": 1}') == (200, b"a")
        assert await running.ask('{"input": "x"}') == (200, b"a")
        assert await running.ask(None, "/health", "GET") == (200, b"a")
        assert await running.ask(b"no json") == (200, b"a")
        status, body = await running.ask('{"model": "third"}')
        assert (status, json.loads(body)["error"]["type"]) == (404, "unknown_model")
        assert "['first', 'second']" in json.loads(body)["error"]["message"]


async def test_a_request_that_names_no_model_is_told_which_there_are() -> None:
    async with server() as one, server() as two, router() as running:
        running.add(one, model="first")
        running.add(two, model="second")
        status, body = await running.ask("{}")
        assert (status, json.loads(body)["error"]["type"]) == (404, "unknown_model")


async def test_a_router_without_servers_says_so() -> None:
    async with router() as running:
        status, body = await running.ask()
        assert (status, json.loads(body)["error"]["type"]) == (503, "no_replica")


async def test_the_control_answers_admin_and_metrics_and_nothing_else() -> None:
    async def control(method: str, path: str, query: str, headers: object, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if path == "/admin/fail":
            raise RuntimeError("oops")
        return 201, {"X-Mine": "1"}, f"{method} {path} {query} {body.decode()}".encode()

    async with server(echoes) as one, router(one, control=control, token="secret") as running:
        assert await running.ask("x", "/admin/replicas?a=b") == (201, b"POST /admin/replicas a=b x")
        assert await running.ask(None, "/metrics", "GET") == (201, b"GET /metrics  ")
        assert (await running.ask("x", "/other"))[0] == 401
        assert (await running.ask("x", "/admin/fail"))[0] == 500
        assert one.asked == []
