"""The planes of GPUs, where there are some: one GPU for CUDA IPC, and one for each end for NCCL."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.choice import communicator_of
from tests.sync.planes.ends import PATIENCE_S, Clock, manifest_of, send, serve, stream_of, weights

pytestmark = pytest.mark.gpu
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL wants a GPU for each end")


def on_gpu(seed: int = 0) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in weights(seed).items()}


@pytest.mark.parametrize("receivers", [1, 2])
def test_what_is_on_a_gpu_is_seen_by_others_on_it(receivers: int) -> None:
    with closing(communicator_of("cuda_ipc")) as comm:
        for seed in (1, 2):
            tickets = comm.open(manifest_of(weights()), receivers, PATIENCE_S)
            with ExitStack() as stack:
                servers = [stack.enter_context(serve(ticket)) for ticket in tickets]
                send(comm, on_gpu(seed))
                assert comm.buffer(0).is_cuda
                assert {server.told() for server in servers} == {stream_of(weights(seed))}


def test_a_killed_server_on_the_same_gpu_is_noticed_in_time() -> None:
    with closing(communicator_of("cuda_ipc")) as comm:
        [ticket] = comm.open(manifest_of(weights()), 1, 2.0)
        with Clock(20.0), serve(ticket, killed_at=1), pytest.raises(WeightSyncError, match="waited 2 s in vain for"):
            send(comm, on_gpu())


@pytest.mark.parametrize("plane", ["shm", "gloo"])
def test_weights_on_a_gpu_reach_servers_without_one(plane: str) -> None:
    with closing(communicator_of("shm" if plane == "shm" else "gloo")) as comm:
        [ticket] = comm.open(manifest_of(weights()), 1, PATIENCE_S)
        with serve(ticket) as server:
            send(comm, on_gpu())
            assert server.told() == stream_of(weights())


@needs_two
def test_what_is_on_a_gpu_reaches_another_one() -> None:
    with closing(communicator_of("nccl", device=torch.device("cuda:0"))) as comm:
        for seed in (1, 2):
            [ticket] = comm.open(manifest_of(weights()), 1, PATIENCE_S)
            with serve(ticket, device="cuda:1") as server:
                send(comm, on_gpu(seed))
                assert server.told() == stream_of(weights(seed))


@needs_two
def test_a_killed_server_on_another_gpu_is_noticed_in_time_and_the_trainer_lives() -> None:
    with closing(communicator_of("nccl", device=torch.device("cuda:0"))) as comm:
        [ticket] = comm.open(manifest_of(weights()), 1, 5.0)
        with Clock(60.0), serve(ticket, killed_at=1, device="cuda:1"), pytest.raises(WeightSyncError, match="nccl"):
            send(comm, on_gpu())
    assert torch.ones(2, device="cuda:0").sum().item() == 2
