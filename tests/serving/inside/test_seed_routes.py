"""The routes that seed 000 names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.seed_routes import SeedRoutes
from reward_loop.serving.inside.update_directory import Status
from tests.serving.inside.updating import PATIENCE_S, Server, server_at
from tests.serving.polling import until

TENSORS = [{"name": "score.weight", "dtype": "torch.float32", "shape": [1, 4]}]
TRAINER = {"host": "127.0.0.1", "port": 4711, "world_size": 2}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with server_at(tmp_path / "updates") as server:
        yield server


@pytest.fixture
def routes(server: Server) -> SeedRoutes:
    return SeedRoutes(server.updates, server.background, "gloo")


async def post(routes: SeedRoutes, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    reply = await routes.reply(path, body or {})
    assert reply.status == 200
    return dict(reply.content)


async def last_error(routes: SeedRoutes) -> str | None:
    """Return how the background's last task ended, once it has."""
    async with asyncio.timeout(20):
        while (await post(routes, "/get_num_background_tasks"))["num_background_tasks"]:  # noqa: ASYNC110 - it is to be asked
            await asyncio.sleep(0.01)
    error = (await post(routes, "/get_num_background_tasks"))["last_error"]
    return None if error is None else str(error)


async def test_an_update_is_announced_once_and_received_in_the_background(server: Server, routes: SeedRoutes) -> None:
    assert await post(routes, "/init_communicator", TRAINER) == {"status": "ok"}
    update = {"metadata": TENSORS, "training_mode": "head_only", "version": 3}
    assert await post(routes, "/update_param_batch", update) == {"status": "ok"}
    assert await last_error(routes) is None
    assert server.updates.version == 3
    ticket, prepare = server.worker.infos[:2]
    trainer = {"plane": "gloo", "trainer": "127.0.0.1:4711", "host": "127.0.0.1", "port": 4711, "number": 1, "receivers": 1}
    assert ticket["ticket"] == {**trainer, "nbytes": 16, "bucket_bytes": 64 << 20}
    assert (prepare["mode"], prepare["manifest"]["tensors"][0]["dtype"]) == ("head_only", "float32")


async def test_an_update_without_a_version_is_the_next_one(server: Server, routes: SeedRoutes) -> None:
    await server.published("a", 7)
    await post(routes, "/init_communicator", TRAINER)
    await post(routes, "/update_param_batch", {"metadata": TENSORS})
    assert await last_error(routes) is None
    assert server.updates.version == 8


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ([], "holds no tensor"),
        ([{"name": "a", "dtype": "int8", "shape": [1]}], "a is int8"),
        (["a"], "no manifest"),
        ("a", "list"),
    ],
)
async def test_an_update_that_makes_no_sense_is_refused_at_once(routes: SeedRoutes, metadata: object, words: str) -> None:
    await post(routes, "/init_communicator", TRAINER)
    with pytest.raises(Refusal, match=words) as caught:
        await routes.reply("/update_param_batch", {"metadata": metadata})
    assert caught.value.status == 400


async def test_an_update_that_does_not_fit_the_model_is_refused_at_once(server: Server, routes: SeedRoutes) -> None:
    server.worker.fail("prepare", "refused", "no weight is called scor.weight")
    await post(routes, "/init_communicator", TRAINER)
    with pytest.raises(Refusal, match=r"scor\.weight"):
        await routes.reply("/update_param_batch", {"metadata": TENSORS})
    assert await post(routes, "/get_num_background_tasks") == {"num_background_tasks": 0, "last_error": None}
    assert server.updates.busy() is None


async def test_an_update_that_fails_later_says_so_when_asked(server: Server, routes: SeedRoutes) -> None:
    server.worker.sends = False
    await post(routes, "/init_communicator", TRAINER)
    await post(routes, "/update_param_batch", {"metadata": TENSORS})
    await until(lambda: "transfer" in server.worker.calls)
    assert (await post(routes, "/get_num_background_tasks"))["num_background_tasks"] == 1
    session = server.worker.infos[-1]["session"]
    server.directory.note(Status(session, "failed", "score.weight holds NaN"))
    assert await last_error(routes) == "score.weight holds NaN"
    assert server.updates.version == 0


async def test_closing_ends_what_is_under_way_and_forgets_the_trainer(server: Server, routes: SeedRoutes) -> None:
    server.worker.sends = False
    await post(routes, "/init_communicator", TRAINER)
    await post(routes, "/update_param_batch", {"metadata": TENSORS})
    await post(routes, "/close_communicator")
    assert "was aborted" in str(await last_error(routes))
    with pytest.raises(Refusal, match="POST /init_communicator first"):
        await routes.reply("/update_param_batch", {"metadata": TENSORS})
    server.worker.sends = True
    await server.published("a", 1)


@pytest.mark.parametrize(
    "change", [{"world_size": 1}, {"world_size": "2"}, {"host": None}, {"port": "4711"}, {"rank": "0"}, {"rank": 1}]
)
async def test_a_trainer_that_can_not_be_reached_is_refused(routes: SeedRoutes, change: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        await routes.reply("/init_communicator", {**TRAINER, **change})


async def test_an_update_beside_another_one_is_refused(server: Server, routes: SeedRoutes) -> None:
    await server.received("a", 1)
    await post(routes, "/init_communicator", TRAINER)
    with pytest.raises(Refusal, match="updates the weights in the session 'a'"):
        await routes.reply("/update_param_batch", {"metadata": TENSORS})
    await server.updates.finish("a", "1", PATIENCE_S)
