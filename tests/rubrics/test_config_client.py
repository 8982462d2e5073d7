"""The clients: what they ask, what they say of a server that refuses, hangs, lies or isn't there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from reward_loop.errors import ConfigError, RequestRejected, RewardLoopError, ServerUnavailable
from reward_loop.loop_thread import LoopThread
from reward_loop.rubrics.config_client import AsyncRubricConfigClient, RubricConfigClient
from reward_loop.rubrics.config_server import ConfigServer
from reward_loop.rubrics.live_config import LiveConfig
from tests.rubrics.live import entry, live_config, weights_of


@pytest.fixture
def served() -> Generator[tuple[LiveConfig, str]]:
    """A live configuration and the URL at which another thread serves it."""
    thread, live = LoopThread("config-server"), live_config()
    server = ConfigServer(live)
    thread.run(server.__aenter__())
    yield live, server.url
    thread.close(server.__aexit__)


@asynccontextmanager
async def answering(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncGenerator[str]:
    """A server of something else."""
    server = web.Server(handler)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_it_reads_and_changes_what_is_served() -> None:
    async with ConfigServer(live_config()) as server:
        client = AsyncRubricConfigClient(server.url, author="anna")
        assert (await client.get())["config_version"] == 1
        answer = await client.update({"task": 0.5}, enabled={"style": False}, config={"style": {"threshold": 0.75}})
        assert (answer["status"], answer["config_version"]) == ("ok", 2)
        pending = await client.get(pending=True)
        assert weights_of(pending)["task"] == 0.5
        assert (entry(pending, "style")["enabled"], entry(pending, "style")["config"]["threshold"]) == (False, 0.75)
        assert (await client.update({"task": 2.0}, apply="immediate"))["applies"] == "immediate"
        assert "weights" in (await client.schema())["properties"]
        assert [change.who for change in server.live.audit] == ["anna", "anna"]


def test_it_works_without_async(served: tuple[LiveConfig, str]) -> None:
    live, url = served
    with RubricConfigClient(url) as client:
        assert client.get()["config_version"] == 1
        assert client.update({"task": 0.5})["config_version"] == 2
        assert client.post({"per_turn": [{"name": "style", "weight": 0.25}]})["config_version"] == 3
        assert "weights" in client.schema()["properties"]
        assert weights_of(live.pending) == {"task": 0.5, "style": 0.25, "outcome": 1.0}
    client.close()


@pytest.mark.parametrize("ending", ["", "/", "/config", "/config/"])
def test_the_url_may_be_written_in_several_ways(served: tuple[LiveConfig, str], ending: str) -> None:
    _, url = served
    for written in (url + ending, url.removeprefix("http://") + ending):
        with RubricConfigClient(written) as client:
            assert client.get()["config_version"] == 1


async def test_what_is_refused_says_why_and_with_which_status() -> None:
    async with ConfigServer(live_config(), token="s3cret") as server:
        client = AsyncRubricConfigClient(server.url, token="s3cret")
        with pytest.raises(RequestRejected, match="did you mean 'task'") as error:
            await client.update({"tsk": 1.0})
        assert (error.value.status, "unknown_rubric" in error.value.body) == (400, True)
        with pytest.raises(RequestRejected, match="token") as error:
            await AsyncRubricConfigClient(server.url).get()
        assert error.value.status == 401


async def test_an_update_for_a_version_is_refused_after_another_one() -> None:
    async with ConfigServer(live_config()) as server:
        client = AsyncRubricConfigClient(server.url)
        await client.update({"task": 2.0}, if_version=1)
        with pytest.raises(RequestRejected) as error:
            await client.update({"task": 3.0}, if_version=1)
        assert error.value.status == 412


async def test_edits_of_many_clients_all_count() -> None:
    def one_more(config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"weights": {"task": entry(dict(config), "task")["weight"] + 1.0}}

    async with ConfigServer(live_config(task=0.0)) as server:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(AsyncRubricConfigClient(server.url).edit(one_more, attempts=50))
        assert weights_of(server.live.pending)["task"] == 10.0
        assert server.live.latest_version == 11


async def test_an_edit_gives_up_after_its_attempts_and_never_hides_another_refusal() -> None:
    async with ConfigServer(live_config()) as server:
        client, tries = AsyncRubricConfigClient(server.url), 0

        def overtaken(config: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal tries
            tries += 1
            server.live.propose({"weights": {"task": float(tries + 1)}}, now=0.0)
            return {"weights": {"task": 0.0}}

        with pytest.raises(RequestRejected) as error:
            await client.edit(overtaken, attempts=3)
        assert (error.value.status, tries) == (412, 3)
        with pytest.raises(RequestRejected, match="finite number"):
            await client.edit(lambda config: {"weights": {"task": "x"}})
        with pytest.raises(RewardLoopError, match="attempts=0"):
            await client.edit(lambda config: {}, attempts=0)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with ConfigServer(live_config()) as server:
        url = server.url
    with pytest.raises(ServerUnavailable, match=url):
        await AsyncRubricConfigClient(url).get()


async def test_a_server_that_hangs_is_unavailable_after_the_timeout() -> None:
    async def hang(request: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with answering(hang) as url:
        with pytest.raises(ServerUnavailable, match=url):
            await AsyncRubricConfigClient(url, timeout_s=0.05).update({"task": 1.0})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: web.Response(text="404: Not Found", status=404), RequestRejected),
        (lambda: web.Response(status=302, headers={"Location": "/elsewhere"}), RequestRejected),
        (lambda: web.Response(status=502), ServerUnavailable),
        (lambda: web.Response(text="<html>hello"), RequestRejected),
        (lambda: web.json_response([]), RequestRejected),
        (lambda: web.json_response({"error": "no"}, status=400), RequestRejected),
        (lambda: web.Response(body=b"\xff" * 10, status=500), ServerUnavailable),
    ],
)
async def test_what_is_no_configuration_server_is_said_to_be_none(
    answer: Callable[[], web.Response], error: type[Exception]
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return answer()

    async with answering(handler) as url:
        with pytest.raises(error, match=url):
            await AsyncRubricConfigClient(url).get()


@pytest.mark.parametrize("url", ["", "ftp://a", "http://user:key@host", "http://a?b=c", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        AsyncRubricConfigClient(url)
