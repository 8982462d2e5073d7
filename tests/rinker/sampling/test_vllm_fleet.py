"""Several servers of one model: who is asked, and who is asked next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampling.vllm_fleet import VLLMFleet
from reward_loop.rinker.sampling.vllm_settings import VLLMSamplerSettings


@dataclass
class Server:
    """Answers every call with its status; `held` calls wait."""

    status: int = 200
    calls: int = 0
    held: asyncio.Event | None = None
    keys: list[str | None] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.calls += 1
        self.keys.append(request.headers.get("Authorization"))
        if self.held is not None:
            await self.held.wait()
        return web.json_response({"data": [{"id": "policy", "max_model_len": 64}]}, status=self.status)


@asynccontextmanager
async def fleet_of(*servers: Server, **settings: object) -> AsyncGenerator[VLLMFleet]:
    async with AsyncExitStack() as stack:
        urls = []
        for server in servers:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", server.answer)
            urls.append(str((await stack.enter_async_context(TestServer(app))).make_url("")))
        yield VLLMFleet(urls, VLLMSamplerSettings.model_validate(settings))


async def test_calls_go_to_the_server_with_the_fewest_in_flight() -> None:
    busy, idle = Server(held=asyncio.Event()), Server(held=asyncio.Event())
    async with fleet_of(busy, idle) as fleet, asyncio.TaskGroup() as calls:
        for _ in range(4):
            calls.create_task(fleet.complete({}))
        while busy.calls + idle.calls < 4:  # noqa: ASYNC110 - over sockets
            await asyncio.sleep(0.001)
        assert (busy.calls, idle.calls) == (2, 2)
        for server in (busy, idle):
            assert server.held is not None
            server.held.set()


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_call_that_a_server_fails_is_answered_by_another(status: int) -> None:
    failing, good = Server(status), Server()
    async with fleet_of(failing, good) as fleet:
        assert (await fleet.complete({})).status == 200
        assert (failing.calls, good.calls) == (1, 1)


async def test_a_call_that_is_refused_is_asked_nobody_else() -> None:
    refusing, other = Server(400), Server(400)
    async with fleet_of(refusing, other) as fleet:
        with pytest.raises(RequestFailedError, match="refuses") as caught:
            await fleet.complete({})
        assert caught.value.category == "user"
        assert refusing.calls + other.calls == 1


async def test_with_patience_a_call_waits_for_servers_to_be_back() -> None:
    server = Server(500)
    async with fleet_of(server, restart_wait_s=60.0) as fleet, asyncio.TaskGroup() as calls:
        call = calls.create_task(fleet.complete({}))
        while not server.calls:  # noqa: ASYNC110 - over sockets
            await asyncio.sleep(0.001)
        server.status = 200
    assert call.result().status == 200


async def test_where_all_fail_the_error_says_what_each_said() -> None:
    async with fleet_of(Server(500), Server(502)) as fleet:
        with pytest.raises(RequestFailedError, match=r"2 asked.*500.*502") as caught:
            await fleet.complete({})
    assert caught.value.category == "server"


async def test_the_key_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINKER_TEST_KEY", "secret-key")
    server = Server()
    async with fleet_of(server, api_key_env="RINKER_TEST_KEY") as fleet:
        served = await fleet.model()
    assert (served.name, served.max_length) == ("policy", 64)
    assert server.keys == ["Bearer secret-key"]


async def test_a_model_that_is_not_served_is_named() -> None:
    async with fleet_of(Server(), model="other") as fleet:
        with pytest.raises(RequestFailedError, match=r"serves policy and not 'other'; set runtime\.vllm\.calls\.model"):
            await fleet.model()
