"""Servers that are gone, busy, or talk nonsense."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reward_loop.errors import RequestFailedError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.remote.patience import Patience
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.remote.transport import Answer, Transport
from reward_loop.rinker.wire.compression import ENCODING, compressed

QUICK = HttpSettings(unreachable_s=0.2, first_pause_s=0.001, longest_pause_s=0.01, attempt_s=5)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def spoken_to(handler: Handler, settings: HttpSettings = QUICK) -> AsyncGenerator[Transport]:
    """Give a transport to a server that answers everything by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        transport = Transport(str(server.make_url("/")), "tml-test", settings)
        try:
            yield transport
        finally:
            await transport.close()


def answering(*statuses: int, text: str = "{}") -> tuple[Handler, list[bytes]]:
    """Answer with these, one after the other (the last again and again), and note the bodies that came. 0: hang up."""
    bodies: list[bytes] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        status = statuses[min(len(bodies), len(statuses)) - 1]
        if status == 0 and request.transport is not None:
            request.transport.abort()
        return web.Response(status=status or 200, text=text, headers={"Location": "/"})

    return handler, bodies


@pytest.mark.parametrize("trouble", [0, 408, 429, 500, 502, 503])
async def test_a_request_is_sent_again_as_it_was_until_it_is_answered(trouble: int) -> None:
    handler, bodies = answering(trouble, trouble, 200)
    async with spoken_to(handler) as transport:
        assert (await transport.post("/optim_step", b'{"seq_id": 1}')).status == 200
    assert bodies == [b'{"seq_id": 1}'] * 3


@pytest.mark.parametrize("status", [302, 400, 404, 410, 413, 415])
async def test_a_request_that_is_refused_is_not_sent_again(status: int) -> None:
    handler, bodies = answering(status, text='{"detail": "the reason"}')
    async with spoken_to(handler) as transport:
        with pytest.raises(RequestFailedError, match=f"{status}: the reason") as failed:
            await transport.post("/optim_step", b"{}")
    assert failed.value.category == "user"
    assert len(bodies) == 1


@pytest.mark.parametrize("trouble", [0, 503])
async def test_a_server_that_stays_in_trouble_is_given_up_in_the_end(trouble: int) -> None:
    handler, bodies = answering(trouble)
    async with spoken_to(handler) as transport:
        with pytest.raises(RequestFailedError, match=r"tried for 0\.2 s \(unreachable_s\)") as failed:
            await transport.post("/optim_step", b"{}")
    assert failed.value.category == "server"
    assert len(bodies) > 2


async def test_a_server_that_is_gone_is_given_up_in_the_end() -> None:
    backend = HttpBackend("http://127.0.0.1:1", settings=QUICK)
    with pytest.raises(RequestFailedError, match="can't be reached") as failed:
        await backend.capabilities()
    assert failed.value.category == "server"
    await backend.close()


async def test_that_work_goes_on_is_an_answer_where_it_is_waited_for() -> None:
    handler, bodies = answering(408, 200)
    async with spoken_to(handler) as transport:
        assert (await transport.post("/retrieve_future", b"{}", may_be_pending=True)).status == 408
    assert len(bodies) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"error": 5}', '{"session_id": 5}', "[" * 100_000])
async def test_an_answer_that_can_not_be_read_is_the_servers_error(text: str) -> None:
    handler, _ = answering(200, text=text)
    async with spoken_to(handler) as transport:
        backend = HttpBackend(str(transport.url), settings=QUICK)
        with pytest.raises(RequestFailedError, match="the server's answer can't be read") as failed:
            await backend.create_sampling_session(base_model="base")
        assert failed.value.category == "server"
        with pytest.raises(RequestFailedError, match="the server's answer can't be read"):
            await backend.capabilities()
        await backend.close()


@pytest.mark.parametrize("packed", [False, True])
async def test_no_more_of_an_answer_is_read_than_is_allowed(packed: bool) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        body = b"x" * (2 << 20)
        return web.Response(body=compressed(body), headers={"Content-Encoding": ENCODING}) if packed else web.Response(body=body)

    async with spoken_to(handler, QUICK.model_copy(update={"max_reply_mb": 1})) as transport:
        with pytest.raises(RequestFailedError, match=r"the server's answer can't be read: .*1048576 bytes") as failed:
            await transport.get("/healthz")
    assert failed.value.category == "server"


async def test_what_an_attempt_removed_whose_answer_was_lost_is_removed() -> None:
    handler, bodies = answering(0, 404)
    async with spoken_to(handler) as transport:
        await transport.delete("/training_runs/m/checkpoints/weights/a")
    assert len(bodies) == 2


async def test_a_path_is_sent_as_it_is_encoded() -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.raw_path)

    async with spoken_to(echo) as transport:
        answer = await transport.get("/samplers/a%2Fb%3Ac?limit=1")
        assert answer.body == b"/api/v1/samplers/a%2Fb%3Ac?limit=1"


async def test_a_base_url_may_have_a_path() -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.path)

    async with spoken_to(echo) as transport:
        below = Transport(f"{transport.url}behind/a/proxy", "tml-test", QUICK)
        answer: Answer = await below.get("/healthz")
        assert answer.body == b"/behind/a/proxy/api/v1/healthz"
        await below.close()


def test_pauses_double_and_end() -> None:
    patience = Patience(HttpSettings(unreachable_s=100, first_pause_s=1, longest_pause_s=8), now=0.0)
    assert [patience.pause_s(10.0) for _ in range(5)] == [1, 2, 4, 8, 8]
    assert patience.pause_s(97.0) == 3
    assert patience.pause_s(100.0) is None


def test_a_server_may_ask_for_a_longer_pause() -> None:
    patience = Patience(HttpSettings(unreachable_s=100, first_pause_s=1, longest_pause_s=8), now=0.0)
    assert [patience.pause_s(0.0, asked_s=3), patience.pause_s(0.0, asked_s=1), patience.pause_s(0.0, asked_s=60)] == [3, 2, 8]
