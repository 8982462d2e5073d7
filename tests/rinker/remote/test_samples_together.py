"""Calls of `sample` that are made in the same moment travel in one request, and each gets what it would get alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reward_loop.errors import RequestFailedError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.types import ModelInput, SampledSequence, SampleResponse, SamplingParams
from reward_loop.rinker.wire.sample_response import encode_sample_response
from tests.rinker.recording_backend import RecordingBackend


class Backend(RecordingBackend):
    """Draws a prompt's first token; a prompt that begins with 0 waits until it is `open`, one that begins with 13 fails."""

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        first = call.prompt.to_ints()[0]
        self.held = {"sample"} if first == 0 else set()
        await super().sample(session_id, call)
        if first == 13:
            raise RequestFailedError("thirteen is not drawn", category="server")
        return SampleResponse([SampledSequence("length", [first], [-0.5])] * call.num_samples)


def call_of(token: int, samples: int = 1) -> SampleCall:
    return SampleCall(ModelInput.from_ints([token]), samples, SamplingParams(max_tokens=1))


@contextlib.asynccontextmanager
async def served(client: HttpSettings | None = None, poll_s: float = 5.0) -> AsyncGenerator[tuple[HttpBackend, Backend, str]]:
    """Give a client of a server, what is behind that, and a sampling session."""
    behind = Backend()
    async with serving(behind, ServerSettings(port=0, poll_s=poll_s, max_samples=8)) as url:
        backend = HttpBackend(url, None, client)
        try:
            yield backend, behind, await backend.create_sampling_session(base_model="base")
        finally:
            await backend.close()


async def tokens(backend: HttpBackend, session: str, call: SampleCall) -> list[int]:
    return [token for sequence in (await backend.sample(session, call)).sequences for token in sequence.tokens]


async def test_each_gets_what_it_asked_for() -> None:
    async with served() as (backend, behind, session):
        wanted = [(number + 1, number % 3 + 1) for number in range(150) if number != 12]
        drawn = await asyncio.gather(*(tokens(backend, session, call_of(*one)) for one in wanted))
        assert drawn == [[token] * samples for token, samples in wanted]
        assert len(behind.asked("sample")) == len(wanted)


async def test_one_that_takes_long_holds_nobody_up() -> None:
    async with served() as (backend, behind, session):
        behind.open.clear()
        long = asyncio.create_task(tokens(backend, session, call_of(0)))
        assert await asyncio.gather(*(tokens(backend, session, call_of(token)) for token in (1, 2))) == [[1], [2]]
        assert not long.done()
        behind.open.set()
        assert await long == [0]


async def test_one_that_takes_longer_than_a_request_waits_is_drawn_once() -> None:
    async with served(HttpSettings(wait_s=0), poll_s=0.02) as (backend, behind, session):
        behind.open.clear()
        long = asyncio.create_task(tokens(backend, session, call_of(0)))
        assert await tokens(backend, session, call_of(1)) == [1]
        await asyncio.sleep(0.1)
        behind.open.set()
        assert await long == [0]
        assert len(behind.asked("sample")) == 2


async def test_one_that_is_refused_or_fails_is_told_why() -> None:
    async with served() as (backend, _, session):
        calls = (call_of(1), call_of(2, samples=9), call_of(13), call_of(3))
        one, many, thirteen, three = await asyncio.gather(
            *(tokens(backend, session, call) for call in calls), return_exceptions=True
        )
        assert (one, three) == ([1], [3])
        assert isinstance(many, RequestFailedError)
        assert (many.category, "num_samples=9 must be from 1 to 8" in many.message) == ("user", True)
        assert isinstance(thirteen, RequestFailedError)
        assert (thirteen.category, thirteen.message) == ("server", "thirteen is not drawn")


async def test_one_that_is_cancelled_is_given_up_and_the_others_go_on() -> None:
    async with served() as (backend, behind, session):
        behind.open.clear()
        long = asyncio.create_task(tokens(backend, session, call_of(0)))
        assert await tokens(backend, session, call_of(1)) == [1]
        long.cancel()
        while behind.given_up == 0:
            await backend.capabilities()
        with pytest.raises(asyncio.CancelledError):
            await long


async def test_a_client_without_a_session_of_its_own_asks_one_by_one() -> None:
    async with served() as (backend, _, session):
        other = HttpBackend(backend.base_url)
        assert await asyncio.gather(*(tokens(other, session, call_of(token)) for token in (4, 5))) == [[4], [5]]
        await other.close()


async def test_closing_leaves_nobody_waiting() -> None:
    async with served(HttpSettings(unreachable_s=0.2, first_pause_s=0.01)) as (backend, behind, session):
        behind.open.clear()
        calls = [asyncio.create_task(tokens(backend, session, call_of(0))) for _ in range(2)]
        while len(behind.asked("sample")) < 2:
            await backend.capabilities()
        await backend.close()
        assert len((await asyncio.wait(calls, timeout=10.0))[0]) == 2
        assert all(call.exception() is not None for call in calls)


async def broken_off(request: web.Request) -> web.StreamResponse:
    """Promise more than is sent, and hang up."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"index": 0, "request_id": "a", "content_type": "b", "size": 100}\n123')
    if request.transport is not None:
        request.transport.abort()
    return response


def saying(text: bytes, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=text, status=status)

    return handler


TROUBLE: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
    "knows no such route": saying(b"", 404),
    "is busy": saying(b"", 503),
    "says nothing": saying(b""),
    "says nonsense": saying(b"<html>\n"),
    "says something endless": saying(b"x" * (1 << 20)),
    "numbers what was not asked": saying(b'{"index": 7, "request_id": "a", "content_type": "b", "size": 0}\n'),
    "announces more than is read": saying(b'{"index": 0, "request_id": "a", "content_type": "b", "size": 99999999999}\n'),
    "breaks off": broken_off,
}


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_all_are_asked_for_alone_where_a_server(trouble: str) -> None:
    asked: Counter[str] = Counter()
    answers = {
        "client/config": b"{}",
        "create_session": b'{"session_id": "s"}',
        "create_sampling_session": b'{"sampling_session_id": "x"}',
    }

    async def handler(request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v1/")
        asked[path] += 1
        if path == "asample_many":
            return await TROUBLE[trouble](request)
        if path == "asample":
            sequence = SampledSequence("length", [5], [-0.5])
            headers = {"X-Request-Id": "r", "Content-Type": "application/x-protobuf"}
            return web.Response(body=encode_sample_response(SampleResponse([sequence])), headers=headers)
        return web.Response(body=answers.get(path, b"{}"), content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        backend = HttpBackend(str(server.make_url("/")))
        session = await backend.create_sampling_session(base_model="base")
        drawn = await asyncio.gather(*(tokens(backend, session, call_of(token)) for token in range(3)))
        await backend.close()
    assert drawn == [[5]] * 3
    assert (asked["asample_many"], asked["asample"]) == (1, 3)
