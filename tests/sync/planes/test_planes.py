"""What every plane between processes of one machine promises: the bytes arrive, or everybody hears in time why they do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import distributed

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.plane import PlaneName, TensorCommunicator, Ticket
from tests.sync.planes.ends import (
    PATIENCE_S,
    Clock,
    End,
    manifest_of,
    send,
    serve,
    server_that_aborts,
    stream_of,
    trainer,
    weights,
)

SOON_S = 10.0
"""Far below PATIENCE_S, also on a busy machine."""


@pytest.fixture(params=["gloo", "shm", "directory"])
def plane(request: pytest.FixtureRequest) -> PlaneName:
    return cast("PlaneName", request.param)


@pytest.fixture
def comm(plane: PlaneName, tmp_path: Path) -> Iterator[TensorCommunicator]:
    with closing(communicator_of(plane, directory=tmp_path)) as comm:
        yield comm


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert sorted(Path("/dev/shm").glob("reward-loop-weights-*")) == []


def opened(comm: TensorCommunicator, receivers: int, timeout_s: float = PATIENCE_S) -> list[Ticket]:
    """The tickets, as they come out of the JSON that carries them."""
    return [json.loads(json.dumps(dict(ticket))) for ticket in comm.open(manifest_of(weights()), receivers, timeout_s)]


@pytest.mark.parametrize("receivers", [1, 2])
def test_what_is_sent_arrives_everywhere(comm: TensorCommunicator, plane: PlaneName, receivers: int, tmp_path: Path) -> None:
    tickets = opened(comm, receivers)
    assert [ticket["plane"] for ticket in tickets] == [comm.plane] * receivers == [plane] * receivers
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(ticket)) for ticket in tickets]
        send(comm, weights())
        assert {server.told() for server in servers} == {stream_of(weights())}
    comm.close()
    assert list(tmp_path.iterdir()) == []
    assert not distributed.is_initialized()


def test_a_plane_carries_one_update_after_another(comm: TensorCommunicator) -> None:
    for seed in (1, 2):
        [ticket] = opened(comm, 1)
        with serve(ticket) as server:
            send(comm, weights(seed))
            assert server.told() == stream_of(weights(seed))
        comm.close()


def test_an_update_smaller_than_a_bucket_takes_no_more_memory_than_it_has(comm: TensorCommunicator) -> None:
    head = {"score": weights()["score"]}
    [ticket] = comm.open(manifest_of(head, 64 << 20), 1, PATIENCE_S)
    assert comm.buffer(0).untyped_storage().nbytes() <= 2 * ticket["nbytes"]
    with serve(ticket) as server:
        comm.buffer(0).copy_(head["score"].view(-1).view(torch.uint8))
        comm.send(0)
        comm.flush()
        assert server.told() == stream_of(head)


def test_what_is_sent_before_all_have_joined_waits_for_them(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    send(comm, weights(), [0, 1])  # returns: two buckets are under way
    with serve(ticket) as server:
        send(comm, weights(), range(2, manifest_of(weights()).buckets))
        comm.flush()
        assert server.told() == stream_of(weights())


def test_a_trainer_that_never_sends_is_given_up_in_time(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    with Clock(SOON_S), serve(ticket, 0.3) as server:
        told = str(server.told())
    assert "waited 0.3 s in vain for" in told
    assert f"({comm.plane})" in told
    with pytest.raises(WeightSyncError, match=r"receiver 1 gave up: it left after 0 of \d buckets"):
        send(comm, weights())


def test_a_trainer_that_falls_silent_is_given_up_in_time(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    with Clock(SOON_S), serve(ticket, 1.0) as server:
        send(comm, weights(), [0, 1])
        comm.buffer(2)
        assert "waited 1 s in vain for" in str(server.told())
        with pytest.raises(WeightSyncError, match="receiver 1 gave up: it left after"):
            send(comm, weights())


def test_a_flush_before_the_end_is_refused(comm: TensorCommunicator) -> None:
    opened(comm, 1)
    send(comm, weights(), [0, 1])
    with pytest.raises(WeightSyncError, match="4 of 6 buckets were not sent, the first of them bucket 2"):
        comm.flush()


@pytest.mark.parametrize("sends", [None, 1, 3])
def test_a_killed_trainer_is_noticed_at_once(plane: PlaneName, tmp_path: Path, sends: int | None) -> None:
    with End(trainer, plane, tmp_path, 2, sends) as killed, ExitStack() as stack:
        servers = [stack.enter_context(serve(ticket)) for ticket in killed.told()]
        if sends is not None:
            assert killed.told() == "sent"
        killed.kill()
        with Clock(SOON_S):
            told = [server.told() for server in servers]
    for error in told:
        assert isinstance(error, WeightSyncError)
        assert any(why in str(error) for why in ("the trainer was gone", "the trainer can't be reached", "broke", "is gone"))


def test_a_killed_server_is_noticed_in_time(comm: TensorCommunicator) -> None:
    tickets = opened(comm, 2, 1.0)
    with Clock(SOON_S), serve(tickets[0]) as healthy, serve(tickets[1], killed_at=1):
        with pytest.raises(WeightSyncError, match=r"waited 1 s in vain for receivers? (1, )?2 of 2 to|broke"):
            send(comm, weights())
        comm.close()
        told = healthy.told()
        assert isinstance(told, WeightSyncError) or comm.plane == "directory"  # which each reads at its own pace


def test_a_server_that_hangs_is_given_up_in_time(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1, 1.0)
    with Clock(SOON_S), serve(ticket, stops_at=1), pytest.raises(WeightSyncError, match=r"waited 1 s in vain for|broke"):
        send(comm, weights())


def test_a_server_that_never_joins_is_named(comm: TensorCommunicator) -> None:
    tickets = opened(comm, 2, 0.5)
    with Clock(SOON_S), serve(tickets[0]) as healthy:
        with pytest.raises(WeightSyncError, match=r"waited 0\.5 s in vain for receivers? (1, )?2 of 2 to join \("):
            send(comm, weights())
        comm.close()
        assert isinstance(healthy.told(), WeightSyncError)


def test_an_abort_of_the_trainer_ends_every_wait(comm: TensorCommunicator) -> None:
    tickets = opened(comm, 2)
    with Clock(SOON_S), serve(tickets[0], stops_at=1) as stuck, serve(tickets[1]) as waiting:

        def abort() -> None:
            assert stuck.told() == "there"
            comm.abort()
            comm.abort()

        if comm.plane == "directory":  # nobody is there before all is written
            send(comm, weights(), range(manifest_of(weights()).buckets))
        aborting = threading.Thread(target=abort)
        aborting.start()
        with pytest.raises(WeightSyncError, match="the update was aborted"):
            send(comm, weights()) if comm.plane != "directory" else comm.flush()
        aborting.join()
        comm.close()
        told = waiting.told()
        assert isinstance(told, WeightSyncError) or comm.plane == "directory"  # which each reads at its own pace


def test_an_abort_before_anyone_has_joined_ends_it_too(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    comm.abort()
    with Clock(SOON_S), serve(ticket) as server:
        with pytest.raises(WeightSyncError, match="the update was aborted"):
            comm.buffer(0)
        assert "the trainer gave up: the update was aborted" in str(server.told())


def test_an_abort_of_a_server_ends_its_wait_and_the_trainers(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    with Clock(SOON_S), End(server_that_aborts, ticket, PATIENCE_S) as server:
        send(comm, weights(), [0, 1])
        comm.buffer(2)
        server.tell("abort")
        assert "the update was aborted" in str(server.told())
        with pytest.raises(WeightSyncError, match="receiver 1 gave up: it left after"):
            send(comm, weights())


def test_a_trainer_that_closes_too_early_leaves_nobody_waiting(comm: TensorCommunicator) -> None:
    [ticket] = opened(comm, 1)
    send(comm, weights(), [0, 1])
    with Clock(SOON_S), serve(ticket) as server:
        comm.buffer(2)
        comm.close()
        assert isinstance(server.told(), WeightSyncError)


def test_what_is_not_open_can_be_closed_and_aborted_but_not_used(comm: TensorCommunicator) -> None:
    comm.close()
    comm.abort()
    for use in (lambda: comm.buffer(0), lambda: comm.send(0), comm.flush):
        with pytest.raises(WeightSyncError, match="is not open"):
            use()
