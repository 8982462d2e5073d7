"""Where a publisher's servers are found: at addresses, behind a client, behind a router, or with whoever manages them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from reward_loop.config_sync import SyncConfig
from reward_loop.errors import ConfigError, WeightSyncError
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings
from reward_loop.scoring.vllm_client import VLLMRewardClient
from reward_loop.sync.chosen_plane import own_address
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.create import changed, create_reward_publisher
from reward_loop.sync.publisher import RewardModelPublisher
from reward_loop.sync.server_call import Access, call
from reward_loop.sync.servers import ServersBehind, url_of
from tests.sync.file_plane import FilePlane
from tests.sync.update_servers import UpdateServer, hangs, hangs_up, refuses, update_servers

HEAD = {"score.weight": torch.ones(1, 4)}


async def urls(control: ControlPlane) -> tuple[str, ...]:
    async with control.reached(5.0) as replicas:
        return replicas.urls


# -- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("host:8001", "http://host:8001"),
        ("http://host:8001/v1/", "http://host:8001"),
        ("https://host/prefix", "https://host/prefix"),
        ("[::1]:8001", "http://[::1]:8001"),
    ],
)
def test_an_address_may_be_written_as_for_a_client(address: str, url: str) -> None:
    assert url_of(address) == url


@pytest.mark.parametrize("address", ["", "ftp://host:1", "http://user:pw@host:1", "http://host?x=1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        ControlPlane([address])


async def test_each_server_is_reached_once() -> None:
    assert await urls(ControlPlane(["a:1", "http://a:1", "b:2"])) == ("http://a:1", "http://b:2")
    assert await urls(ControlPlane("a:1")) == ("http://a:1",)
    with pytest.raises(ConfigError, match="names no server"):
        ControlPlane([])


def test_servers_on_this_machine_find_the_trainer_there() -> None:
    assert own_address(["http://127.0.0.1:8001", "http://localhost:8002"]) == "127.0.0.1"
    with pytest.raises(WeightSyncError, match=r"there is no way to http://nowhere\.invalid:1"):
        own_address(["http://nowhere.invalid:1"])


# -- one call --------------------------------------------------------------------------------------------------------


async def test_an_answer_says_what_the_server_said() -> None:
    with update_servers(UpdateServer(troubles={"version": refuses("not now", 503)})) as [server]:
        answer = await call(server.url, "GET", "/runtime_version", timeout_s=5)
    assert (answer.status, answer.good, answer.lost) == (503, False, False)
    assert str(answer) == f"{server.url} answered 503: not now"


@pytest.mark.parametrize(
    ("trouble", "said"), [(hangs, "did not answer GET /runtime_version within 0.1 s"), (hangs_up, "reached")]
)
async def test_what_brings_no_answer_is_lost(trouble: Any, said: str) -> None:
    with update_servers(UpdateServer(troubles={"version": trouble})) as [server]:
        answer = await call(server.url, "GET", "/runtime_version", timeout_s=0.1)
    assert answer.lost
    assert said in str(answer)


# -- clients and routers ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def router(**replicas: Sequence[UpdateServer]) -> AsyncGenerator[RouterProcess]:
    async with RouterProcess(RouterSettings(admin_token="secret-of-the-admin")) as process:
        for model, servers in replicas.items():
            for server in servers:
                await process.add(model, server.url)
        yield process


def publisher_of(plane: FilePlane, client: VLLMRewardClient, **options: Any) -> RewardModelPublisher:
    return create_reward_publisher(client, rank0_only=False, comm=plane, timeout_s=10.0, drain_timeout_s=1.0, **options)


async def test_a_client_of_one_server_publishes_to_it(tmp_path: Path) -> None:
    with update_servers(UpdateServer()) as [server]:
        client = VLLMRewardClient(base_url=f"{server.url}/v1")
        await publisher_of(FilePlane(tmp_path), client).publish_async(HEAD, training_mode="head_only")
        assert server.version == 1


async def test_behind_a_router_every_server_of_the_model_is_published_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_ADMIN", "secret-of-the-admin")
    with update_servers(UpdateServer(), UpdateServer(), UpdateServer()) as servers:
        async with router(rm=servers[:2], other=servers[2:]) as process:
            client = VLLMRewardClient(address=process.address, model_name="rm")
            one = publisher_of(FilePlane(tmp_path), client, admin_token_env="ROUTER_ADMIN")
            await one.publish_async(HEAD, training_mode="head_only")
            assert [server.version for server in servers] == [1, 1, 0]
            nobody = ServersBehind(f"http://{process.address}", None, admin=Access("ROUTER_ADMIN"))
            with pytest.raises(WeightSyncError, match=r"serves other, rm: name the model"):
                await nobody.urls(5.0)
            stranger = ServersBehind(f"http://{process.address}", "judge", admin=Access("ROUTER_ADMIN"))
            with pytest.raises(WeightSyncError, match=r"has no server of 'judge', but of other, rm"):
                await stranger.urls(5.0)


async def test_a_router_that_does_not_tell_its_servers_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with update_servers(UpdateServer()) as servers:
        async with router(rm=servers) as process:
            client = VLLMRewardClient(address=process.address, model_name="rm")
            with pytest.raises(WeightSyncError, match=r"is a router.*servers=\[…\], or admin_token_env"):
                await publisher_of(FilePlane(tmp_path), client).publish_async(HEAD, training_mode="head_only")
            assert servers[0].calls.count("start") == 0
            one = publisher_of(FilePlane(tmp_path), client, servers=[servers[0].url])
            await one.publish_async(HEAD, training_mode="head_only")
            assert servers[0].version == 1


async def test_the_servers_of_a_manager_are_kept_awake_until_the_update_is_over(tmp_path: Path) -> None:
    leases: list[str] = []

    class Manager:
        def servers_of(self, model: str | None = None) -> Any:
            assert model == "rm"
            return self

        access = Access()

        async def urls(self, timeout_s: float) -> Sequence[str]:
            assert timeout_s == 10.0
            leases.append("urls")
            return [server.url]

        def lease(self) -> AbstractAsyncContextManager[None]:
            return self._lease()

        @asynccontextmanager
        async def _lease(self) -> AsyncGenerator[None]:
            leases.append("awake")
            yield
            leases.append(f"version {server.version}")

    with update_servers(UpdateServer()) as [server]:
        one = create_reward_publisher(Manager(), model="rm", comm=FilePlane(tmp_path), timeout_s=10.0)
        await one.publish_async(HEAD, training_mode="head_only")
    assert leases == ["awake", "urls", "version 1"]


def test_a_publisher_is_made_for_what_has_servers_only() -> None:
    with pytest.raises(ConfigError, match="this is a int"):
        create_reward_publisher(7)  # type: ignore[call-overload]


def test_settings_are_checked_where_a_publisher_is_made() -> None:
    assert changed(changed(SyncConfig(), {"plane": "gloo"}), {"timeout_s": 5}).plane == "gloo"
    wrong: list[dict[str, Any]] = [{"plane": "smoke"}, {"timeout_s": 0}, {"bucket": 1}]
    for options in wrong:
        with pytest.raises(ConfigError, match=f"{next(iter(options))}=.*its settings are plane, bucket_mb"):
            create_reward_publisher("a:1", **options)
