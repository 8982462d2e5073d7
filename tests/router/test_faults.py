"""What becomes of requests when servers fail: nothing that the client would see, where another server can answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from tests.router.upstreams import (
    Asked,
    Behaviour,
    Router,
    answers,
    closed,
    echoes,
    hangs,
    reply,
    resets,
    router,
    says,
    server,
)

CUT = says(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"score": 1', keep=False)
CUT_CHUNKED = says(
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n", keep=False
)
GARBAGE = says(b"SSH-2.0-OpenSSH_9.2\r\n", keep=False)


async def statuses(running: Router, count: int, at_once: int = 16) -> list[int]:
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> int:
        async with gate:
            status, body = await running.ask(f'{{"input": {number}}}')
            if status == 200:
                assert body == b"ok"
            return status

    return list(await asyncio.gather(*(one(number) for number in range(count))))


@pytest.mark.parametrize(
    ("bad", "most"),
    [
        (answers("broken", 500), 25),
        (answers("busy", 503), 60),
        (answers("slow down", 429, "Retry-After: 5\r\n"), 25),
        (CUT, 25),
        (CUT_CHUNKED, 25),
        (GARBAGE, 25),
        (resets(), 25),
    ],
    ids=["500", "503", "429", "cut", "cut chunked", "garbage", "reset"],
)
async def test_what_one_of_three_servers_spoils_is_answered_by_another(bad: Behaviour, most: int) -> None:
    async with server(bad) as one, server() as two, server() as three, router(one, two, three) as running:
        assert await statuses(running, 300) == [200] * 300
        assert len(one.asked) <= most
        assert len(two.asked) + len(three.asked) == 300


async def test_a_server_that_is_down_at_the_start_is_not_missed() -> None:
    async with server() as gone:
        down = gone.url
    async with server() as one, router(one) as running:
        running.add(down)
        assert await statuses(running, 50) == [200] * 50
        assert running.fleet.find(down).state == "ejected"
        assert "no connection" in running.fleet.find(down).trouble


async def test_a_request_that_hangs_is_sent_to_another_server() -> None:
    async with server(hangs) as one, server() as two, router(one, two, attempt_timeout_s=0.3, policy="round_robin") as running:
        assert await statuses(running, 20) == [200] * 20
        assert running.fleet.find(one.url).state == "ejected"
        assert one.lost == len(one.asked) >= 3


async def test_requests_stuck_in_a_server_that_a_health_check_gave_up_are_sent_to_another() -> None:
    async with server(hangs) as one, server() as two, router(one, health_timeout_s=0.2) as running:
        asking = asyncio.create_task(running.ask())
        await one.was_asked.wait()
        running.add(two)
        running.fleet.eject(running.fleet.find(one.url), "no answer to a health check")
        assert await asking == (200, b"ok")


async def test_a_hung_server_that_is_the_only_one_is_waited_for_until_the_end() -> None:
    async with server(hangs) as one, router(one, attempt_timeout_s=0.1, total_timeout_s=0.5) as running:
        status, body = await running.ask()
        assert status == 504
        error = json.loads(body)["error"]
        assert error["type"] == "timeout"
        assert one.url in error["message"]
        await asyncio.wait_for(one.lost_one.wait(), 10)


async def test_a_server_is_used_again_after_a_health_check() -> None:
    async with server(answers("broken", 500)) as one, server() as two, router(one, two) as running:
        assert await statuses(running, 30) == [200] * 30
        assert running.fleet.find(one.url).state == "ejected"
        one.behave = answers()
        running.fleet.probed(one.url)
        before = len(one.asked)
        assert await statuses(running, 30) == [200] * 30
        assert len(one.asked) > before
        assert not running.fleet.find(one.url).on_trial


async def test_a_server_that_fails_its_trial_is_ejected_at_once() -> None:
    async with server(answers("broken", 500)) as one, server() as two, router(one, two) as running:
        await statuses(running, 30)
        before = len(one.asked)
        running.fleet.probed(one.url)
        assert await statuses(running, 30) == [200] * 30
        assert len(one.asked) == before + 1
        assert running.fleet.find(one.url).state == "ejected"


async def test_a_rejection_is_passed_on_at_once_with_its_body() -> None:
    async with server(answers('{"bad": 1}', 400)) as one, server(answers('{"bad": 2}', 400)) as two, router(one, two) as running:
        for _ in range(10):
            status, body = await running.ask()
            assert (status, json.loads(body).keys()) == (400, {"bad"})
        assert len(one.asked) + len(two.asked) == 10
        assert {replica.state for replica in running.fleet} == {"active"}


async def test_one_server_that_rejects_what_others_accept_is_found_out() -> None:
    async with (
        server(answers("no such model", 404)) as one,
        server() as two,
        server() as three,
        router(one, two, three) as running,
    ):
        running.fleet.find(one.url).state = "asleep"
        running.fleet.wake(two.url)  # the others have answered before
        assert await statuses(running, 10) == [200] * 10
        running.fleet.wake(one.url)
        assert await statuses(running, 100) == [200] * 100
        assert len(one.asked) <= 10
        assert running.fleet.find(one.url).state == "ejected"


async def test_what_a_sibling_rejects_too_was_the_clients_fault() -> None:
    async def picky(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply(b"your fault", 400) if asked.body == b"bad" else reply(b"ok"))
        return True

    async with (
        server(answers("your fault", 400)) as one,
        server(picky) as two,
        router(one, two, policy="round_robin") as running,
    ):
        running.fleet.drain(one.url)
        assert (await running.ask())[0] == 200
        running.fleet.wake(one.url)
        for _ in range(8):
            assert await running.ask("bad") == (400, b"your fault")
        assert {replica.state for replica in running.fleet} == {"active"}


async def test_an_error_of_all_servers_is_passed_on_with_its_body() -> None:
    async with server(answers("NaN", 500)) as one, server(answers("NaN", 500)) as two, router(one, two) as running:
        for _ in range(20):
            assert await running.ask() == (500, b"NaN")


async def test_a_single_server_may_always_fail_and_is_still_asked() -> None:
    async with server(answers("NaN", 500)) as one, router(one) as running:
        for _ in range(10):
            assert await running.ask() == (500, b"NaN")
        one.behave = answers()
        assert await running.ask() == (200, b"ok")


async def test_with_all_servers_gone_the_answer_names_them() -> None:
    async with AsyncExitStack() as stack:
        gone = [await stack.enter_async_context(server()) for _ in range(2)]
        urls = [one.url for one in gone]
    async with router(*urls) as running:
        status, body = await running.ask()
        assert status == 502
        assert json.loads(body)["error"]["type"] == "upstream_failed"
        for _ in range(3):
            status, body = await running.ask()
        error = json.loads(body)["error"]
        assert (status, error["type"], error["code"]) == (503, "no_replica", 503)
        assert all(url in error["message"] for url in urls)
        assert "no connection" in error["message"]


async def test_servers_that_sleep_are_said_to_sleep() -> None:
    async with server() as one, router(one) as running:
        running.fleet.sleep(one.url)
        status, body = await running.ask()
        assert (status, json.loads(body)["error"]["type"]) == (503, "asleep")
        running.fleet.wake(one.url)
        assert (await running.ask())[0] == 200


async def test_what_may_not_be_asked_twice_is_asked_once() -> None:
    async with server(resets()) as one, server(resets()) as two, router(one, two) as running:
        for path in ("/sleep?level=1", "/wake_up", "/collective_rpc", "/update_weights", "/v1/load_lora_adapter"):
            before = len(one.asked) + len(two.asked)
            status, _ = await running.ask(path=path)
            assert status == 502
            assert len(one.asked) + len(two.asked) == before + 1
            for replica in running.fleet:
                running.fleet.wake(replica.url)


async def test_an_idle_connection_that_the_server_just_closed_costs_nothing() -> None:
    async with server() as one, router(one) as running:
        assert (await running.ask())[0] == 200

        async def hangs_up_once(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            one.behave = answers()
            writer.transport.abort()
            return False

        one.behave = hangs_up_once
        assert await running.ask() == (200, b"ok")
        replica = running.fleet.find(one.url)
        assert (replica.failures_in_row, replica.state, running.fleet.counters.stale) == (0, "active", 1)


async def test_a_client_that_is_gone_cancels_what_goes_on_for_it() -> None:
    async with server(hangs) as one, router(one) as running:
        for _ in range(10):
            _, writer = await asyncio.open_connection(running.host, running.port)
            writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            await one.was_asked.wait()
            one.was_asked.clear()
            await closed(writer)
            await asyncio.wait_for(one.lost_one.wait(), 10)
            one.lost_one.clear()
        replica = running.fleet.find(one.url)
        assert (one.lost, replica.in_flight, replica.outcomes["cancelled"], replica.failures_in_row) == (10, 0, 10, 0)


async def test_a_budget_bounds_how_often_requests_are_sent_twice() -> None:
    busy = answers("busy", 503)
    async with server(busy) as one, server(busy) as two, router(one, two, retry_budget=0.0) as running:
        assert set(await statuses(running, 400)) == {503}
        assert running.fleet.counters.retries == 256
        assert len(one.asked) + len(two.asked) == 400 + 256


async def test_a_slow_request_is_hedged_and_the_first_answer_counts() -> None:
    async with server() as one, server() as two, router(one, two, hedge_quantile=0.9, policy="round_robin") as running:
        await statuses(running, 64, at_once=4)
        one.behave = hangs
        assert await statuses(running, 20, at_once=1) == [200] * 20
        assert running.fleet.counters.hedges_won >= 5
        assert {replica.in_flight for replica in running.fleet} == {0}


async def test_a_router_that_is_told_to_stop_finishes_what_is_in_flight() -> None:
    release = asyncio.Event()

    async def waits(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(b"ok"))
        return True

    async with server(waits) as one, router(one) as running:
        asking = [asyncio.create_task(running.ask()) for _ in range(24)]
        while len(one.asked) < 24:  # noqa: ASYNC110 - the fake has no event per request
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(running.server.drain_and_close(20.0))
        await asyncio.sleep(0)
        release.set()
        assert await asyncio.gather(*asking) == [(200, b"ok")] * 24
        await draining
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection(running.host, running.port)


async def test_equal_bodies_meet_the_same_server_whatever_the_load() -> None:
    async with (
        server(echoes) as one,
        server(echoes) as two,
        server(echoes) as three,
        router(one, two, three, policy="consistent_hash", affinity="body", max_in_flight=2) as running,
    ):
        bodies = [f'{{"input": {number % 10}}}'.encode() for number in range(200)]
        assert await asyncio.gather(*(running.ask(body) for body in bodies)) == [(200, body) for body in bodies]
        places = [{asked.body for asked in each.asked} for each in (one, two, three)]
        assert sum(map(len, places)) == 10
