"""Publishing to servers over real sockets: what is asked in which order, and that all of them change, or none."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.publisher import RewardModelPublisher
from reward_loop.sync.report import PublishReport
from tests.sync.file_plane import FilePlane
from tests.sync.publishing import DONE, HEAD, HEAD_ONLY, WEIGHTS, assert_all_serve, publisher
from tests.sync.update_servers import (
    Late,
    UpdateServer,
    refuses,
    update_servers,
)


@pytest.fixture
def plane(tmp_path: Path) -> FilePlane:
    return FilePlane(tmp_path)


# -- an update that succeeds -----------------------------------------------------------------------------------------


def test_both_servers_serve_what_was_published_and_the_report_says_what_it_cost(plane: FilePlane) -> None:
    with update_servers(UpdateServer(), UpdateServer(version=4)) as servers:
        report = publisher(plane, *servers).publish(WEIGHTS)
        assert_all_serve(servers, 5, WEIGHTS)
        assert [server.calls for server in servers] == [DONE, DONE]
    nbytes = sum(tensor.nbytes for tensor in WEIGHTS.values())
    assert (report.version, report.tensors, report.nbytes, report.plane) == (5, 3, nbytes, "directory")
    assert [each.server for each in report.replicas] == [server.url for server in servers]
    assert report.longest_pause_s == 0.2
    assert report.seconds == report.prepare_s + report.transfer_s + report.commit_s > 0


def test_nothing_is_sent_before_all_are_prepared_and_nothing_committed_before_all_have_received(plane: FilePlane) -> None:
    with update_servers(UpdateServer(), UpdateServer(), UpdateServer()) as servers:
        publisher(plane, *servers).publish(WEIGHTS)
        steps = [step for _, step in servers[0].order]
    assert steps == [step for step in DONE for _ in servers]


def test_a_head_only_update_carries_the_bytes_of_the_head_alone(plane: FilePlane) -> None:
    with update_servers(UpdateServer(weights=dict(WEIGHTS))) as servers:
        changed = {**WEIGHTS, "score.weight": torch.ones(1, 4)}
        report = publisher(plane, *servers).publish(changed, training_mode=HEAD_ONLY)
        assert_all_serve(servers, 1, changed)
        assert servers[0].bodies["prepare"]["update_info"]["mode"] == "head_only"
    assert (report.nbytes, report.tensors) == (16, 1)


def test_one_publisher_publishes_again_and_again(plane: FilePlane) -> None:
    with update_servers(UpdateServer()) as servers:
        one = publisher(plane, *servers)
        versions = [
            one.publish(WEIGHTS).version,
            one.publish(WEIGHTS, 7).version,
            one.publish(HEAD, training_mode=HEAD_ONLY).version,
        ]
    assert versions == [1, 7, 8]
    assert plane.log.count("close") == plane.log.count("open") == 3


def test_each_update_is_one_line_of_the_log(plane: FilePlane, caplog: pytest.LogCaptureFixture) -> None:
    with update_servers(UpdateServer()) as servers, caplog.at_level(logging.INFO, "reward_loop.sync"):
        publisher(plane, *servers).publish(WEIGHTS)
    [record] = caplog.records
    assert record.getMessage().startswith("published version=1 mode=full plane=directory servers=1 tensors=3 bytes=232 ")


async def test_it_works_in_a_running_loop_which_goes_on_meanwhile(plane: FilePlane) -> None:
    late, ticks = Late(), 0
    with update_servers(UpdateServer(troubles={"finish": late})) as servers:
        one = publisher(plane, *servers)
        work = asyncio.create_task(one.publish_async(WEIGHTS))
        while not late.reached.is_set():
            ticks += 1
            await asyncio.sleep(0.001)
        late.let.set()
        assert (await work).version == 1
        assert one.publish(WEIGHTS).version == 2  # from within the loop
    assert ticks > 1


def test_of_two_threads_one_publishes_after_the_other(plane: FilePlane) -> None:
    late, reports = Late(), list[PublishReport]()
    with update_servers(UpdateServer(troubles={"transfer": late})) as servers:
        one = publisher(plane, *servers)
        threads = [threading.Thread(target=lambda: reports.append(one.publish(WEIGHTS))) for _ in range(2)]
        for thread in threads:
            thread.start()
        late.reached.wait(20)
        assert servers[0].calls.count("start") == 1
        late.let.set()
        for thread in threads:
            thread.join()
    assert [report.version for report in reports] == [1, 2]


def test_the_key_of_the_servers_is_shown_at_every_step(plane: FilePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_KEY", "sk-sync")
    with update_servers(UpdateServer()) as servers:
        one = RewardModelPublisher(ControlPlane(servers[0].url, token_env="SYNC_KEY"), plane)
        one.publish(WEIGHTS)
        assert {headers["Authorization"] for headers in servers[0].headers} == {"Bearer sk-sync"}


# -- what is asked before anything moves -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [-1, True])
def test_a_version_that_is_none_is_refused(plane: FilePlane, version: int) -> None:
    with update_servers(UpdateServer()) as servers:
        with pytest.raises(WeightSyncError, match=r"must be a whole number from 0"):
            publisher(plane, *servers).publish(WEIGHTS, version)
        assert servers[0].calls == ["version"]


def test_a_part_is_not_published_to_servers_of_different_versions_but_everything_is(plane: FilePlane) -> None:
    with update_servers(UpdateServer(version=3), UpdateServer(version=4)) as servers:
        one = publisher(plane, *servers)
        with pytest.raises(WeightSyncError, match=r"different versions \(http://\S+ 3, http://\S+ 4\).*training_mode=full"):
            one.publish(HEAD, training_mode=HEAD_ONLY)
        assert {step for _, step in servers[0].order} == {"version"}
        assert one.publish(WEIGHTS).version == 5
        assert_all_serve(servers, 5, WEIGHTS)


def test_servers_that_can_not_be_synced_are_refused_with_a_remedy(plane: FilePlane) -> None:
    with update_servers(UpdateServer(runtime={"sync": False})) as servers, pytest.raises(WeightSyncError, match="reward_loop"):
        publisher(plane, *servers).publish(WEIGHTS)
    with (
        update_servers(UpdateServer(), UpdateServer(troubles={"version": refuses("Not Found", 404)})) as servers,
        pytest.raises(WeightSyncError, match=rf"{servers[1].url} is a vLLM without the reward loop's plugin"),
    ):
        publisher(plane, *servers).publish(WEIGHTS)
    with (
        update_servers(UpdateServer(runtime={"version": "new"})) as servers,
        pytest.raises(WeightSyncError, match="version: Input should be a valid integer"),
    ):
        publisher(plane, *servers).publish(WEIGHTS)


def test_a_server_that_is_not_there_is_named_within_the_time_limit(plane: FilePlane) -> None:
    with update_servers(UpdateServer()) as [server]:
        gone = UpdateServer(url="http://127.0.0.1:1")
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match=r"1 of 2 servers did not say .*http://127.0.0.1:1 can't be reached"):
            publisher(plane, server, gone, timeout_s=0.3).publish(WEIGHTS)
        assert time.monotonic() - began < 5
        assert server.calls == ["version"]


def test_a_server_that_restarts_is_waited_for(plane: FilePlane) -> None:
    calls = 0

    async def comes_back(_: UpdateServer, __: Any) -> Any:
        nonlocal calls
        calls += 1
        return "hang up" if calls < 3 else None

    with update_servers(UpdateServer(troubles={"version": comes_back})) as servers:
        publisher(plane, *servers).publish(WEIGHTS)
        assert_all_serve(servers, 1, WEIGHTS)
