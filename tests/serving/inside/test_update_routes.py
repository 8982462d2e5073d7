"""The HTTP routes of an update: what they take, what they answer, and what they refuse."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.serving.inside.exchange import HungUp, Receive
from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.update_routes import UPDATE_PATHS, UpdateRoutes
from tests.serving.inside.updating import MANIFEST, Exchange, Server, server_at
from tests.serving.polling import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with server_at(tmp_path / "updates") as server:
        yield server


async def reading_sender() -> Receive:
    """Return the sender of a request whose body was read, and who stays."""
    exchange = Exchange()
    await exchange.receive()
    return exchange.receive


async def post(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what a good request is answered."""
    reply = await UpdateRoutes(server.updates).reply(path, body, await reading_sender())
    assert reply.status == 200
    return dict(reply.content)


async def refused(server: Server, path: str, body: dict[str, Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await UpdateRoutes(server.updates).reply(path, body, await reading_sender())
    return caught.value


def update_info(phase: str, **more: Any) -> dict[str, Any]:
    return {"update_info": {"phase": phase, "session": "a", **more}}


PREPARE = update_info("prepare", manifest=MANIFEST, mode="full", version=4)


async def prepared(server: Server) -> None:
    await post(server, "/start_weight_update", {"session": "a", "timeout_s": 60, "trainer": "41@here"})
    await post(server, "/init_weight_transfer_engine", {"init_info": {"session": "a", "ticket": {"plane": "gloo", "port": 1}}})
    await post(server, "/update_weights", PREPARE)


async def test_an_update_by_http(server: Server) -> None:
    started = await post(server, "/start_weight_update", {"session": "a", "timeout_s": 60, "trainer": "41@here"})
    assert started == {"session": "a", "version": 0}
    assert "41@here" in str(server.updates.busy())
    await post(server, "/init_weight_transfer_engine", {"init_info": {"session": "a", "ticket": {"plane": "gloo", "port": 1}}})
    assert await post(server, "/update_weights", PREPARE) == {"session": "a", "version": 4}
    received = await post(server, "/update_weights", update_info("transfer"))
    assert received["digests"] == ["d0", "d1"]
    await post(server, "/update_weights", update_info("verify", digests=received["digests"]))
    finished = await post(server, "/finish_weight_update", {"session": "a", "weight_version": "4", "drain_timeout_s": 60})
    assert finished.keys() == {"version", "pause_s", "drain_s", "commit_s"}
    assert finished["version"] == 4
    assert server.worker.infos[0] == {"session": "a", "ticket": {"plane": "gloo", "port": 1}}
    assert {key: server.worker.infos[1][key] for key in ("phase", "mode", "version")} == {
        "phase": "prepare",
        "mode": "full",
        "version": 4,
    }


async def test_an_update_is_taken_back_by_http(server: Server) -> None:
    await server.published("z", 4)
    await post(server, "/start_weight_update", {"session": "a"})
    assert (await post(server, "/finish_weight_update", {"session": "a", "revert": True}))["version"] == 0


async def test_an_abort_is_good_whether_there_is_a_session_or_not(server: Server) -> None:
    await prepared(server)
    said = {"session": "a", "version": 0}
    assert await post(server, "/update_weights", update_info("abort")) == {**said, "aborted": True}
    assert await post(server, "/update_weights", update_info("abort")) == {**said, "aborted": False}


async def test_a_trainer_that_hangs_up_while_it_sends_aborts(server: Server) -> None:
    server.worker.sends = False
    await prepared(server)
    exchange = Exchange(stays=False)
    await exchange.receive()
    with pytest.raises(HungUp):
        await UpdateRoutes(server.updates).reply("/update_weights", update_info("transfer"), exchange.receive)
    await until(lambda: server.updates.busy() is None)
    assert server.worker.calls[-1] == "abort"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/start_weight_update", {}),
        ("/init_weight_transfer_engine", {"init_info": {"master_address": "h", "master_port": 1}}),
        ("/update_weights", {"update_info": {"names": ["a"], "dtype_names": ["float32"], "shapes": [[1]]}}),
        ("/finish_weight_update", {"weight_version": "3"}),
    ],
)
async def test_a_client_of_another_engine_is_told_what_is_expected(server: Server, path: str, body: dict[str, Any]) -> None:
    refusal = await refused(server, path, body)
    assert (refusal.status, refusal.kind) == (400, "bad_request")
    assert "POST /start_weight_update {session, timeout_s, trainer}" in str(refusal)
    assert server.worker.calls == []


@pytest.mark.parametrize("path", sorted(path for path in UPDATE_PATHS if "draft" in path or "shutdown" in path))
async def test_what_our_engine_does_not_do_is_refused(server: Server, path: str) -> None:
    assert (await refused(server, path, {})).status == 400


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"session": "a", "timeout_s": 0}, "timeout_s=0 must be a positive number"),
        ({"session": "a", "timeout_s": True}, "timeout_s=True must be a positive number"),
        ({"session": "a", "timeout_s": "60"}, "timeout_s='60' must be a positive number"),
        ({"session": 3}, "has no session"),
        ({"session": "a", "trainer": 3}, "trainer=3 must be a JSON string"),
    ],
)
async def test_a_start_that_makes_no_sense_claims_nothing(server: Server, body: dict[str, Any], words: str) -> None:
    assert words in str(await refused(server, "/start_weight_update", body))
    assert server.updates.busy() is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "head"}, "mode='head' must be one of head_only, lora, full"),
        ({"version": "4"}, "version='4' must be a JSON integer"),
        ({"version": True}, "version=True must be a JSON integer"),
        ({"version": -1}, "version=-1 must not be negative"),
        ({"manifest": []}, "manifest=[] must be a JSON object"),
        ({"phase": "sing"}, "phase='sing' must be prepare, transfer, verify or abort"),
    ],
)
async def test_a_prepare_that_makes_no_sense_does_not_end_the_session(server: Server, change: dict[str, Any], words: str) -> None:
    await prepared(server)
    assert words in str(await refused(server, "/update_weights", {"update_info": {**PREPARE["update_info"], **change}}))
    await post(server, "/update_weights", update_info("transfer"))
