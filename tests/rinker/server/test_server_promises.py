"""Results that are to come: waited for, fetched, given up, and dropped after a while."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import aiohttp
import pytest

from reward_loop.errors import RequestFailedError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.server.promise import Reply
from reward_loop.rinker.server.promises import Promises
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.wire.compression import compressed, decompressed
from reward_loop.rinker.wire.sample_response import decode_sample_response
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.server.http_caller import MODEL, Caller, asked_to_sample, calling
from tests.rinker.server.reluctant_threads import ReluctantThreads


def promises(**settings: Any) -> Promises:
    return Promises(ServerSettings(**settings))


def test_the_same_key_gives_the_same_promise_for_as_long_as_it_is_kept() -> None:
    table = promises(result_ttl_s=10)
    promise = table.open(("model", "m", 1), "s")
    assert table.find(("model", "m", 1)) is promise
    assert table.find(("model", "m", 2)) is None
    table.settle(promise, Reply(b"x"), now=0.0)
    table.sweep(now=9.0)
    assert table.find(("model", "m", 1)) is promise
    table.sweep(now=11.0)
    assert table.find(("model", "m", 1)) is None


def test_a_result_that_is_gone_is_told_apart_from_one_that_never_was() -> None:
    table = promises(fetched_ttl_s=1)
    promise = table.open(("k",), "s")
    table.settle(promise, Reply(b"x"), now=0.0)
    table.fetched(promise, now=0.0)
    assert table.get(promise.id) is promise
    table.sweep(now=2.0)
    statuses = {}
    for name in (promise.id, promises().open(("k",), "s").id, "1", f"{promise.id}9", f"{promise.id}²", ""):
        with pytest.raises(Refusal) as refused:
            table.get(name)
        statuses[name] = refused.value.status
    assert list(statuses.values()) == [410, 404, 404, 404, 404, 404]


def test_what_was_fetched_goes_before_what_was_not() -> None:
    table = promises(max_results=2)
    one, other, third = (table.open((number,), "s") for number in range(3))
    for at, promise in enumerate((one, other, third)):
        table.settle(promise, Reply(b"x"), now=float(at))
    table.fetched(other, now=3.0)
    table.sweep(now=4.0)
    assert table.find((1,)) is None
    assert (table.find((0,)), table.find((2,))) == (one, third)


def test_results_take_no_more_memory_than_allowed() -> None:
    table = promises(max_results_mb=1)
    for number in range(5):
        table.settle(table.open((number,), "s"), Reply(b"x" * (1 << 19)), now=0.0)
    table.sweep(now=0.0)
    assert [number for number in range(5) if table.find((number,)) is not None] == [3, 4]


def test_what_is_still_to_come_is_never_dropped_and_bounded() -> None:
    table = promises(max_pending=1, result_ttl_s=1)
    promise = table.open((0,), "s")
    table.sweep(now=1e9)
    assert table.get(promise.id) is promise
    with pytest.raises(Refusal, match="wait or run already"):
        table.open((1,), "s")


async def test_a_request_that_is_made_again_runs_once_and_has_one_result() -> None:
    async with calling() as caller:
        sampler = await caller.sampler()
        first, second = [await caller.post("/asample", asked_to_sample(sampler)) for _ in range(2)]
        assert first.json == second.json
        assert (await caller.post("/asample", asked_to_sample(sampler, 1))).json != first.json
        results = [await caller.post("/retrieve_future", {"request_id": first.json["request_id"]}) for _ in range(2)]
        assert results[0].raw == results[1].raw
        assert len(caller.backend.asked("sample")) == 2


async def test_each_sequence_has_a_name_from_the_beginning() -> None:
    async with calling() as caller:
        promised = await caller.post("/asample", asked_to_sample(await caller.sampler(), num_samples=3))
        names = promised.json["sample_sequence_ids"]
        assert len(set(names)) == 3
        result = await caller.post("/retrieve_future", {"request_id": promised.json["request_id"]})
        assert result.headers["Content-Type"] == "application/x-protobuf"
        assert [one.tokens for one in decode_sample_response(result.raw, names).sequences] == [[0], [1], [2]]


async def test_a_result_that_does_not_come_in_time_is_asked_for_again() -> None:
    async with calling(poll_s=0.01) as caller:
        caller.backend.open.clear()
        promised = await caller.post("/asample", asked_to_sample(await caller.sampler()))
        body = {"request_id": promised.json["request_id"]}
        early = await caller.post("/retrieve_future", body)
        assert early.status == 408
        assert early.json == {"type": "try_again", **body, "queue_state": "active"}
        caller.backend.open.set()
        while (late := await caller.post("/retrieve_future", body)).status == 408:
            pass
        assert late.status == 200


async def test_who_prefers_to_wait_gets_the_result_at_once() -> None:
    async with calling() as caller:
        sampler = await caller.sampler()
        result = await caller.post("/asample", asked_to_sample(sampler), Prefer="wait=10")
        promise = result.headers["X-Request-Id"]
        assert decode_sample_response(result.raw, [f"{promise}:0"]).sequences[0].tokens == [0]
        again = await caller.post("/retrieve_future", {"request_id": promise})
        assert again.raw == result.raw


async def test_who_waits_in_vain_gets_the_promise() -> None:
    async with calling(poll_s=0.01) as caller:
        caller.backend.open.clear()
        promised = await caller.post("/asample", asked_to_sample(await caller.sampler()), Prefer="wait=10")
        assert "X-Request-Id" not in promised.headers
        assert promised.json["request_id"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RequestFailedError("no such loss", category="user"), {"error": "no such loss", "category": "user"}),
        (RequestFailedError("out of memory", category="server"), {"error": "out of memory", "category": "server"}),
        (ZeroDivisionError("a fault"), {"error": "ZeroDivisionError: a fault", "category": "server"}),
    ],
)
async def test_an_error_is_a_result_that_says_whose_fault_it_is(error: Exception, told: dict[str, str]) -> None:
    async with calling() as caller:
        caller.backend.failure = error
        failed = await caller.result("/asample", asked_to_sample(await caller.sampler()))
        assert (failed.status, failed.json) == (200, told)


async def test_a_request_that_is_given_up_ends() -> None:
    async with calling() as caller:
        caller.backend.open.clear()
        sampler = await caller.sampler()
        by_id, by_key = [await caller.post("/asample", asked_to_sample(sampler, number)) for number in range(2)]
        assert (await caller.post("/cancel_future", {"request_id": by_id.json["request_id"]})).status == 200
        assert (await caller.post("/cancel_future", {"sampling_session_id": sampler, "seq_id": 1})).status == 200
        for promised in (by_id, by_key):
            result = await caller.post("/retrieve_future", {"request_id": promised.json["request_id"]})
            assert result.json["error"] == "the request was cancelled"
        assert caller.backend.given_up == 2
        assert (await caller.post("/cancel_future", {"request_id": "nobody's"})).status == 404


async def test_of_a_large_result_the_size_will_do_first() -> None:
    async with calling(inline_result_mb=1) as caller:
        caller.backend.failure = RequestFailedError("x" * (1 << 21), category="user")
        promised = await caller.post("/asample", asked_to_sample(await caller.sampler()))
        body = {"request_id": promised.json["request_id"]}
        size = (await caller.post("/retrieve_future", body | {"allow_metadata_only": True})).json
        assert size["status"] == "complete_metadata"
        whole = await caller.post("/retrieve_future", body)
        assert len(whole.raw) == size["response_payload_size"]


async def test_a_large_result_travels_packed_to_who_can_unpack_it() -> None:
    async with calling(compress=True) as caller:
        caller.backend.failure = RequestFailedError("x" * 100_000, category="user")
        promised = await caller.post("/asample", asked_to_sample(await caller.sampler()))
        packed = await caller.post("/retrieve_future", {"request_id": promised.json["request_id"]}, Accept_Encoding="gzip, zstd")
        plain = await caller.post("/retrieve_future", {"request_id": promised.json["request_id"]}, Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "zstd"
        assert decompressed(packed.raw, 1 << 20) == plain.raw


async def test_more_requests_than_allowed_are_told_to_come_later() -> None:
    async with calling(max_pending=2) as caller:
        sampler = await caller.sampler()
        caller.backend.open.clear()
        statuses = [(await caller.post("/asample", asked_to_sample(sampler, number))).status for number in range(3)]
        assert statuses == [200, 200, 429]


async def test_who_waits_while_the_server_stops_is_told_so() -> None:
    backend = RecordingBackend()
    async with aiohttp.ClientSession(headers={"X-API-Key": "tml-test"}) as client, asyncio.TaskGroup() as group:
        async with serving(backend, ServerSettings(port=0)) as url:
            caller = Caller(url, client, backend)
            sampler = await caller.sampler()
            backend.open.clear()
            promised = await caller.post("/asample", asked_to_sample(sampler))
            waiting = group.create_task(caller.post("/retrieve_future", {"request_id": promised.json["request_id"]}))
            for _ in range(10):  # until the server has the other request
                await caller.get("/healthz")
        said = await waiting
        assert (said.status, said.headers["Retry-After"]) == (503, "1")
        assert backend.given_up == 1
        assert not backend.closed


@pytest.mark.parametrize("path", ["/create_model", "/sessions/SESSION/finish"])
async def test_a_request_that_is_understood_only_once_the_server_stops_is_told_so(path: str) -> None:
    backend, threads = RecordingBackend(), ReluctantThreads(free=0)
    async with aiohttp.ClientSession(headers={"X-API-Key": "tml-test"}) as client, asyncio.TaskGroup() as group:
        async with serving(backend, ServerSettings(port=0)) as url:
            caller = Caller(url, client, backend)
            session = await caller.session()
            await caller.model(session)
            large = {"session_id": session, "model_seq_id": 1, "user_metadata": {"key": secrets.token_hex(1 << 19)}, **MODEL}
            where, body = path.replace("SESSION", session), compressed(json.dumps(large).encode())
            asking = group.create_task(caller.post(where, body, Content_Encoding="zstd"))
            while threads.jobs == 0:
                await caller.get("/healthz")
            asyncio.get_running_loop().call_later(0.05, threads.go_on.set)
        said = await asking
        assert (said.status, said.headers["Retry-After"]) == (503, "1")
    assert len(backend.asked("create_model")) == 1
    assert not backend.asked("unload_model")
