"""Updates of a server's weights: what goes well, and that whatever goes wrong leaves it as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from reward_loop.serving.inside.reply import Refusal
from reward_loop.serving.inside.update_directory import Status
from tests.serving.inside.updating import MANIFEST, PATIENCE_S, Server, server_at
from tests.serving.polling import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with server_at(tmp_path / "updates") as server:
        yield server


async def check_is_as_it_was(server: Server, version: int = 0) -> None:
    """Assert that an update left nothing behind, and that the next one succeeds."""
    assert (server.updates.version, server.updates.busy()) == (version, None)
    assert not server.worker.paused
    async with server.gate.passed():
        pass
    server.worker.faults.clear()
    server.worker.sends = True
    await server.published("next", version + 10)
    assert server.updates.version == version + 10


async def test_an_update_serves_once_it_is_committed(server: Server) -> None:
    await server.received("a", 4)
    assert (server.updates.version, server.directory.record().version) == (0, 0)
    timings = await server.updates.finish("a", "4", PATIENCE_S)
    assert (server.updates.version, server.directory.record().version, server.worker.label) == (4, 4, "4")
    assert server.worker.calls == ["start", "ticket", "prepare", "transfer", "pause wait clear", "finish", "resume"]
    assert timings["pause_s"] >= timings["commit_s"] >= 0 <= timings["drain_s"]
    await check_is_as_it_was(server, 4)


async def test_what_was_received_is_told_bucket_by_bucket(server: Server) -> None:
    await server.updates.start("a", "t", PATIENCE_S)
    await server.updates.ticket("a", {"plane": "gloo"})
    await server.updates.prepare("a", MANIFEST, "full", 1)
    received = await server.updates.transfer("a")
    assert received["digests"] == ["d0", "d1"]
    assert received["seconds"] >= 0
    await server.updates.verify("a", ["d0", "d1"])
    await server.updates.finish("a", None, PATIENCE_S)
    assert server.updates.version == 1


async def test_a_version_that_is_not_newer_is_refused_and_0_is_one(server: Server) -> None:
    await server.published("a", 0)
    assert server.directory.record().updated
    await server.updates.start("b", "t", PATIENCE_S)
    await server.updates.ticket("b", {})
    with pytest.raises(Refusal, match="version 0 is not newer than version 0") as caught:
        await server.updates.prepare("b", MANIFEST, "full", 0)
    assert (caught.value.status, caught.value.kind) == (409, "old_version")
    await check_is_as_it_was(server, 0)


async def test_a_server_that_starts_again_has_the_version_that_it_had(tmp_path: Path) -> None:
    async with server_at(tmp_path) as server:
        await server.published("a", 7)
    async with server_at(tmp_path) as server:
        await server.updates.announce()
        assert (server.updates.version, server.worker.label) == (7, "7")


@pytest.mark.parametrize(("phase", "kind"), [("prepare", "refused"), ("transfer", "refused"), ("verify", "corrupt")])
async def test_what_the_worker_refuses_is_the_trainers_fault_with_its_reason(server: Server, phase: str, kind: str) -> None:
    server.worker.fail(phase, "refused", "no weight is called scor.weight; did you mean score.weight?")

    async def update() -> None:
        await server.received("a", 1)
        await server.updates.verify("a", ["d0", "x"])

    with pytest.raises(Refusal, match="did you mean") as caught:
        await update()
    assert (caught.value.status, caught.value.kind) == (400, kind)
    await check_is_as_it_was(server)


async def test_a_transfer_that_fails_later_says_why(server: Server) -> None:
    server.worker.sends = False
    receiving = asyncio.create_task(server.received("a", 1))
    await until(lambda: "transfer" in server.worker.calls)
    server.directory.note(Status("a", "failed", "the trainer is gone"))
    with pytest.raises(Refusal, match="the trainer is gone") as caught:
        await receiving
    assert (caught.value.status, caught.value.kind) == (500, "failed")
    await check_is_as_it_was(server)


async def test_a_commit_that_fails_leaves_the_old_version_and_a_worker_that_takes_the_next(server: Server) -> None:
    await server.published("a", 3)
    server.worker.fail("finish", "failed", "out of memory; version 3 was loaded again")
    with pytest.raises(Refusal, match="version 3 was loaded again") as caught:
        await server.published("b", 4)
    assert (caught.value.status, caught.value.kind) == (500, "failed")
    assert server.worker.calls[-3:] == ["finish", "resume", "abort"]
    await check_is_as_it_was(server, 3)


async def test_the_version_that_is_committed_is_the_one_that_was_prepared(server: Server) -> None:
    await server.received("a", 3)
    with pytest.raises(Refusal, match="weight_version='4' is not what was prepared, which is '3'"):
        await server.updates.finish("a", "4", PATIENCE_S)
    await check_is_as_it_was(server)


async def test_a_trainer_that_is_never_heard_of_again_loses_its_session(server: Server) -> None:
    await server.updates.start("a", "t", 0.05)
    await until(lambda: server.updates.busy() is None)
    await until(lambda: server.worker.calls[-1:] == ["abort"])
    with pytest.raises(Refusal, match=r"session 'a' was over after timeout_s=0\.05"):
        await server.updates.ticket("a", {})
    await check_is_as_it_was(server)


async def test_a_trainer_that_never_sends_is_waited_for_until_its_time_is_over(server: Server) -> None:
    server.worker.sends = False
    with pytest.raises(Refusal, match=r"was over after timeout_s=0\.1") as caught:
        await server.received("a", 1, timeout_s=0.1)
    assert (caught.value.status, caught.value.kind) == (504, "expired")
    await check_is_as_it_was(server)


async def test_a_trainer_that_hangs_up_while_it_sends_aborts_its_update(server: Server) -> None:
    server.worker.sends = False
    receiving = asyncio.create_task(server.received("a", 1))
    await until(lambda: "transfer" in server.worker.calls)
    receiving.cancel()
    await asyncio.wait([receiving])
    assert server.worker.calls[-1] == "abort"
    await check_is_as_it_was(server)


async def test_an_abort_ends_a_transfer_that_waits(server: Server) -> None:
    server.worker.sends = False
    receiving = asyncio.create_task(server.received("a", 1))
    await until(lambda: "transfer" in server.worker.calls)
    assert await server.updates.abort("a")
    with pytest.raises(Refusal, match="'a' was aborted"):
        await receiving
    assert not await server.updates.abort("a")
    await check_is_as_it_was(server)


async def test_an_abort_of_nothing_leaves_the_session_of_another(server: Server) -> None:
    await server.received("a", 1)
    assert not await server.updates.abort("b")
    await server.updates.finish("a", "1", PATIENCE_S)


async def test_a_drain_without_end_aborts_the_update(server: Server) -> None:
    await server.received("a", 1)
    async with server.gate.passed():
        with pytest.raises(Refusal, match=r"1 requests were still in flight after drain_timeout_s=0\.01"):
            await server.updates.finish("a", "1", 0.01)
    await check_is_as_it_was(server)


async def test_an_abort_during_the_drain_is_in_time(server: Server) -> None:
    await server.received("a", 1)
    async with server.gate.passed():
        finishing = asyncio.create_task(server.updates.finish("a", "1", PATIENCE_S))
        await until(lambda: "(commit; " in str(server.updates.busy()))
        assert await server.updates.abort("a")
    with pytest.raises(Refusal, match="'a' was aborted"):
        await finishing
    assert "finish" not in server.worker.calls
    await check_is_as_it_was(server)


async def test_an_abort_during_the_commit_is_too_late_and_says_so(server: Server) -> None:
    await server.received("a", 1)
    server.worker.may_commit.clear()
    finishing = asyncio.create_task(server.updates.finish("a", "1", PATIENCE_S))
    await server.worker.commits.wait()
    aborting = asyncio.create_task(server.updates.abort("a"))
    await asyncio.sleep(0)
    server.worker.may_commit.set()
    assert not await aborting
    await finishing
    await check_is_as_it_was(server, 1)


async def test_a_commit_goes_on_when_its_client_is_gone(server: Server) -> None:
    await server.received("a", 1)
    server.worker.may_commit.clear()
    finishing = asyncio.create_task(server.updates.finish("a", "1", PATIENCE_S))
    await server.worker.commits.wait()
    finishing.cancel()
    await asyncio.wait([finishing])
    assert server.worker.paused
    server.worker.may_commit.set()
    await until(lambda: server.updates.busy() is None)
    await check_is_as_it_was(server, 1)


async def test_an_engine_that_dies_in_mid_commit_ends_the_wait(server: Server) -> None:
    await server.received("a", 1)
    server.worker.errored = True
    with pytest.raises(Refusal, match="engine is dead") as caught:
        await server.updates.finish("a", "1", PATIENCE_S)
    assert caught.value.status == 500


async def test_an_update_can_be_taken_back_once(server: Server) -> None:
    await server.published("a", 3)
    await server.published("b", 4)
    await server.updates.start("c", "t", PATIENCE_S)
    await server.updates.revert("c", PATIENCE_S)
    assert (server.updates.version, server.worker.label) == (3, "3")
    await check_is_as_it_was(server, 3)


async def test_the_first_update_is_taken_back_to_the_checkpoint(server: Server) -> None:
    await server.published("a", 4)
    await server.updates.start("b", "t", PATIENCE_S)
    await server.updates.revert("b", PATIENCE_S)
    assert (server.updates.version, server.worker.label) == (0, "default")


async def test_a_revert_that_the_worker_refuses_changes_nothing(server: Server) -> None:
    server.worker.fail("revert", "refused", "there is no update to take back")
    await server.updates.start("a", "t", PATIENCE_S)
    with pytest.raises(Refusal, match="no update to take back") as caught:
        await server.updates.revert("a", PATIENCE_S)
    assert caught.value.status == 400
    assert "finish" not in server.worker.calls
    await check_is_as_it_was(server)


async def test_nothing_is_begun_while_the_weights_sleep(server: Server) -> None:
    server.residence.asleep = server.residence.weights_asleep = True
    with pytest.raises(Refusal, match="POST /wake_up") as caught:
        await server.updates.start("a", "t", PATIENCE_S)
    assert (caught.value.status, caught.value.kind) == (503, "asleep")
    server.residence.weights_asleep = False
    server.worker.paused = True
    await server.published("a", 1)
    assert server.worker.paused, "a sleeping engine was resumed"


async def test_weights_that_fell_asleep_meanwhile_are_not_replaced(server: Server) -> None:
    await server.received("a", 1)
    server.residence.weights_asleep = True
    with pytest.raises(Refusal, match="the weights sleep"):
        await server.updates.finish("a", "1", PATIENCE_S)
    server.residence.weights_asleep = False
    await check_is_as_it_was(server)


@pytest.mark.parametrize(("mode", "still"), [("full", False), ("head_only", True), ("lora", True)])
async def test_only_a_whole_update_brings_dropped_weights_back(server: Server, mode: str, still: bool) -> None:
    server.residence.dropped = True
    if still:
        with pytest.raises(Refusal, match="sync them all"):
            await server.published("a", 1, mode=mode)
    else:
        await server.published("a", 1, mode=mode)
    assert server.residence.dropped is still
    assert [info["dropped"] for info in server.worker.infos if "dropped" in info] == [True]


async def test_what_a_server_ends_with_is_not_waited_for(tmp_path: Path) -> None:
    async with server_at(tmp_path) as server:
        await server.received("a", 1)
        server.worker.may_commit.clear()
        finishing = asyncio.create_task(server.updates.finish("a", "1", PATIENCE_S))
        await server.worker.commits.wait()
    await asyncio.wait([finishing])
    assert finishing.cancelled()
