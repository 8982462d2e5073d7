"""What a publish that fails or is interrupted leaves: on all servers the old weights, or on all the new ones."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.report import PublishReport
from tests.sync.file_plane import FilePlane
from tests.sync.publishing import HEAD, WEIGHTS, assert_all_serve, publisher
from tests.sync.update_servers import (
    Late,
    UpdateServer,
    commits_and_hangs_up,
    dies,
    hangs,
    hangs_up,
    lies,
    refuses,
    update_servers,
)


@pytest.fixture
def plane(tmp_path: Path) -> FilePlane:
    return FilePlane(tmp_path)


# -- an update that fails: all keep their weights --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "trouble", "said"),
    [
        (
            "start",
            refuses("busy: 17@elsewhere since 10:00:00", 409),
            r"1 of \d servers did not begin the update: .*busy: 17@else",
        ),
        ("start", hangs_up, r"did not begin the update: .*can't be reached"),
        ("init", refuses("no such plane"), r"did not join the update: .*no such plane"),
        ("prepare", refuses("score.weight: shape [2, 4], served [1, 4]"), r"did not take these weights: .*score.weight: shape"),
        ("prepare", hangs_up, r"did not take these weights: .*can't be reached"),
        ("prepare", dies, r"did not take these weights: .*can't be reached"),
        ("transfer", refuses("score.weight holds NaN", 422), r"did not receive the weights: .*score.weight holds NaN"),
        ("transfer", hangs_up, r"did not receive the weights: .*can't be reached"),
        ("transfer", dies, r"did not receive the weights: .*can't be reached"),
        ("transfer", lies, r"what 1 servers received is not what was sent: .*other bytes in the buckets \[0, 1\] of 2"),
        ("finish", refuses("no memory", 500), r"version 5 is served nowhere: 1 of 2 servers did not begin .*no memory"),
        ("finish", hangs_up, r"version 5 is served nowhere: .*can't be reached"),
    ],
)
@pytest.mark.parametrize("other_first", [False, True])
def test_where_one_server_fails_all_keep_their_weights_and_the_next_update_succeeds(
    plane: FilePlane, step: str, trouble: Any, said: str, other_first: bool
) -> None:
    old = {"score.weight": torch.zeros(1, 4)}
    bad, good = (UpdateServer(version=4, weights=dict(old)) for _ in range(2))
    bad.troubles[step] = trouble  # type: ignore[index]
    with update_servers(*((good, bad) if other_first else (bad, good))) as servers:
        one = publisher(plane, *servers)
        with pytest.raises(WeightSyncError, match=said) as raised:
            one.publish(WEIGHTS)
        assert bad.url in str(raised.value)
        assert bad.session is None or bad.dead
        assert_all_serve((good,), 4, old)
        assert step == "finish" or ("finish" not in good.calls and good.calls[-1] == "abort")
        bad.troubles, bad.dead, bad.session = {}, False, None
        one.publish({**WEIGHTS, **HEAD})
        assert_all_serve(servers, 5, WEIGHTS)


@pytest.mark.parametrize("step", ["start", "init", "prepare", "transfer"])
def test_a_server_that_hangs_is_left_at_the_time_limit(plane: FilePlane, step: Any) -> None:
    with update_servers(UpdateServer(troubles={step: hangs}), UpdateServer()) as servers:
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match=rf"{servers[0].url} did not answer POST /\w+ within 0.[23]"):
            publisher(plane, *servers, timeout_s=0.3).publish(WEIGHTS)
        assert time.monotonic() - began < 5
        assert_all_serve(servers[1:], 0, {})


def test_a_server_that_fails_to_receive_ends_a_trainer_that_waits(tmp_path: Path) -> None:
    with update_servers(UpdateServer(troubles={"transfer": refuses("gone", 500)})) as servers:
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match="gone"):
            publisher(FilePlane(tmp_path, silent=True), *servers).publish(WEIGHTS)
        assert time.monotonic() - began < 5


def test_a_plane_that_breaks_is_the_reason_and_what_the_servers_saw_of_it(tmp_path: Path) -> None:
    plane = FilePlane(tmp_path, breaks=1)
    with update_servers(UpdateServer(), UpdateServer()) as servers:
        with pytest.raises(WeightSyncError, match=r"the trainer is gone.*the trainer's end: the plane broke at bucket 1"):
            publisher(plane, *servers).publish(WEIGHTS)
        assert_all_serve(servers, 0, {})
    assert plane.log[-1] == "close"


def test_a_plane_that_spoils_bytes_is_found_out(tmp_path: Path) -> None:
    with update_servers(UpdateServer(), UpdateServer()) as servers:
        with pytest.raises(WeightSyncError, match=r"what 2 servers received is not what was sent.*buckets \[0, 1\] of 2"):
            publisher(FilePlane(tmp_path, spoils=True), *servers).publish(WEIGHTS)
        assert_all_serve(servers, 0, {})


# -- a commit that fails somewhere -----------------------------------------------------------------------------------


def test_a_commit_that_failed_on_one_is_taken_back_on_the_others(plane: FilePlane) -> None:
    old = {"score.weight": torch.zeros(1, 4)}
    servers = [UpdateServer(version=2, weights=dict(old)) for _ in range(3)]
    servers[1].troubles["finish"] = refuses("no memory", 500)
    with update_servers(*servers):
        with pytest.raises(WeightSyncError, match=r"is served nowhere.*no memory.*taken back at") as raised:
            publisher(plane, *servers).publish(WEIGHTS)
        assert servers[0].calls[-2:] == servers[2].calls[-2:] == ["start", "revert"]
        assert servers[0].url in str(raised.value).rpartition("taken back at")[2]
        assert_all_serve((servers[0], servers[2]), 2, old)


def test_a_server_whose_answer_was_lost_and_that_serves_the_new_weights_has_committed(plane: FilePlane) -> None:
    with update_servers(UpdateServer(troubles={"finish": commits_and_hangs_up}), UpdateServer()) as servers:
        report = publisher(plane, *servers).publish(WEIGHTS)
        assert_all_serve(servers, 1, WEIGHTS)
    assert [each.pause_s for each in report.replicas] == [None, 0.2]


def test_a_server_that_was_killed_in_the_commit_and_is_back_with_the_new_weights_takes_them_back(plane: FilePlane) -> None:
    refusing = UpdateServer(troubles={"finish": refuses("no memory", 500)})
    killed = UpdateServer()

    async def killed_after_the_commit(server: UpdateServer, _: Any) -> Any:
        server.commit()
        server.session = None
        server.dead = True
        return "hang up"

    other = UpdateServer()
    killed.troubles |= {"finish": killed_after_the_commit}
    with update_servers(refusing, killed, other) as servers:

        def revive() -> None:
            while "revert" not in other.calls:
                time.sleep(0.002)
            killed.dead = False

        thread = threading.Thread(target=revive)
        thread.start()
        with pytest.raises(WeightSyncError, match=r"is served nowhere.*taken back at") as raised:
            publisher(plane, *servers).publish(WEIGHTS)
        thread.join()
        assert killed.url in str(raised.value).rpartition("taken back at")[2]
        assert_all_serve(servers[1:], 0, {})


def test_a_server_that_stays_away_is_said_to_be_unknown(plane: FilePlane) -> None:
    with update_servers(UpdateServer(troubles={"finish": dies}), UpdateServer()) as servers:
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match=rf"may be served by some.*{servers[0].url} is still away.*training_mode=full"):
            publisher(plane, *servers, timeout_s=0.5).publish(WEIGHTS)
        assert time.monotonic() - began < 10
        assert_all_serve(servers[1:], 0, {})


def test_a_server_that_can_not_take_it_back_is_named(plane: FilePlane) -> None:
    stuck = UpdateServer(troubles={"revert": refuses("the disk is full", 500)})
    with (
        update_servers(UpdateServer(troubles={"finish": refuses("no", 500)}), stuck) as servers,
        pytest.raises(WeightSyncError, match=rf"may be served by some.*{stuck.url} answered 500: the disk is full"),
    ):
        publisher(plane, *servers).publish(WEIGHTS)


# -- who is interrupted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["start", "prepare", "transfer"])
async def test_who_is_cancelled_before_the_commit_leaves_the_old_weights_everywhere(plane: FilePlane, step: Any) -> None:
    late = Late()
    with update_servers(UpdateServer(troubles={step: late}), UpdateServer()) as servers:
        work = asyncio.create_task(publisher(plane, *servers).publish_async(WEIGHTS))
        await asyncio.to_thread(late.reached.wait, 20)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert [server.calls[-1] for server in servers] == ["abort", "abort"]
        assert_all_serve(servers, 0, {})


async def test_who_is_cancelled_in_the_commit_leaves_it_done_everywhere(plane: FilePlane) -> None:
    late = Late()
    with update_servers(UpdateServer(troubles={"finish": late}), UpdateServer()) as servers:
        work = asyncio.create_task(publisher(plane, *servers).publish_async(WEIGHTS))
        await asyncio.to_thread(late.reached.wait, 20)
        work.cancel()
        await asyncio.sleep(0)
        late.let.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert_all_serve(servers, 1, WEIGHTS)


def test_ctrl_c_leaves_the_old_weights_everywhere(plane: FilePlane) -> None:
    late = Late()

    def interrupt() -> None:
        late.reached.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    with update_servers(UpdateServer(troubles={"transfer": late}), UpdateServer()) as servers:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            publisher(plane, *servers).publish(WEIGHTS)
        thread.join()
        assert [server.calls[-1] for server in servers] == ["abort", "abort"]
        assert_all_serve(servers, 0, {})


def test_of_two_trainers_at_once_exactly_one_publishes(tmp_path: Path) -> None:
    with update_servers(UpdateServer(), UpdateServer()) as servers:
        outcomes: list[object] = []
        ready = threading.Barrier(2)

        def train(number: int) -> None:
            one = publisher(FilePlane(tmp_path / str(number)), *(servers if number else servers[::-1]))
            ready.wait()
            try:
                outcomes.append(one.publish(WEIGHTS, version=number + 1))
            except WeightSyncError as error:
                outcomes.append(error)

        threads = [threading.Thread(target=train, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({server.version for server in servers}) == 1
        assert any(isinstance(outcome, PublishReport) for outcome in outcomes)
        assert_all_serve(servers, servers[0].version, WEIGHTS)
