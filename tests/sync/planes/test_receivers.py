"""What a server's end refuses: tickets that are none, buckets out of order, and memory of another size."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.receivers import receiver_of
from tests.sync.planes.ends import Clock, manifest_of, weights

TICKET: Mapping[str, Any] = {
    "plane": "shm",
    "host": "127.0.0.1",
    "port": 1,
    "trainer": "process 7 on here",
    "number": 1,
    "receivers": 1,
    "bucket_bytes": 128,
    "nbytes": 200,
}


def memory(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)


@pytest.mark.parametrize(
    "change", [{"port": 0}, {"port": "x"}, {"number": 0}, {"number": 2}, {"nbytes": 0}, {"bucket_bytes": None}]
)
def test_a_ticket_that_is_none_is_refused_at_once(change: Mapping[str, Any]) -> None:
    with pytest.raises(WeightSyncError, match="no ticket of a plane"):
        receiver_of({**TICKET, **change}, 1.0)


def test_a_ticket_without_a_place_is_refused_at_once() -> None:
    with pytest.raises(WeightSyncError, match="no ticket of a plane: KeyError\\('host'\\)"):
        receiver_of({"plane": "gloo"}, 1.0)


def test_an_unknown_plane_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(WeightSyncError, match="plane 'pigeon' is unknown; there are nccl, gloo, shm, directory, cuda_ipc"):
        receiver_of({**TICKET, "plane": "pigeon"}, 1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("plane", ["nccl", "cuda_ipc"])
def test_planes_of_gpus_are_refused_where_there_are_none(plane: Any) -> None:
    with pytest.raises(WeightSyncError, match="needs a CUDA device"):
        receiver_of({**TICKET, "plane": plane}, 1.0)
    with pytest.raises(WeightSyncError, match="needs a CUDA device"):
        communicator_of(plane)


def test_buckets_come_in_order_and_into_memory_of_their_size() -> None:
    receiver = receiver_of(TICKET, 1.0)
    with pytest.raises(WeightSyncError, match="bucket 1 of 2 is not the next one, which is 0"):
        receiver.receive(1, memory(72))
    with pytest.raises(WeightSyncError, match="bucket 0 of 2 has 128 bytes; there is memory for 72"):
        receiver.receive(0, memory(72))


def test_a_trainer_that_is_gone_is_noticed_at_once() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
    receiver = receiver_of({**TICKET, "port": port}, 60.0)
    with Clock(10.0), pytest.raises(WeightSyncError, match=rf"the trainer can't be reached at 127\.0\.0\.1:{port}: .*refused"):
        receiver.receive(0, memory(128))


def test_who_aborts_before_it_has_joined_does_not_join() -> None:
    receiver = receiver_of(TICKET, 1.0)
    receiver.abort()
    with pytest.raises(WeightSyncError, match="the update was aborted"):
        receiver.receive(0, memory(128))
    receiver.close()
    receiver.close()


def test_an_address_that_is_not_the_trainers_is_refused() -> None:
    with pytest.raises(WeightSyncError, match=r"can't listen on 192\.0\.2\.1:0 .*pass host="):
        communicator_of("gloo", host="192.0.2.1").open(manifest_of(weights()), 1, 1.0)


def test_a_trainer_listens_where_it_was_told_to_and_nowhere_else() -> None:
    with closing(communicator_of("shm")) as comm:
        [ticket] = comm.open(manifest_of(weights()), 1, 1.0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", ticket["port"]), 5.0)
        again = communicator_of("shm", port=ticket["port"])
        with pytest.raises(WeightSyncError, match="can't listen on"):
            again.open(manifest_of(weights()), 1, 1.0)
    with closing(again):
        again.open(manifest_of(weights()), 1, 1.0)  # the port is free with the plane's end
