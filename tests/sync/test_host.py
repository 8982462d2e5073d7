"""Where ends are, and the plane that it leaves between them."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.connection import Connection

import pytest
import torch

from reward_loop.sync.host import Place, choose_plane, gpu_uuids, host_id
from reward_loop.sync.planes.plane import PlaneName
from tests.sync.planes.ends import End

CPU, ELSEWHERE = Place("cpu", "a"), Place("cpu", "b")


def tell_host(told: Connection) -> None:
    told.send(host_id())


def on(*gpus: str, host: str = "a") -> Place:
    return Place("cuda", host, gpus)


@pytest.mark.parametrize(
    ("trainer", "servers", "plane"),
    [
        (CPU, [CPU], "shm"),
        (CPU, [CPU, CPU], "shm"),
        (CPU, [ELSEWHERE], "gloo"),
        (CPU, [CPU, ELSEWHERE], "gloo"),
        (on("0"), [CPU], "shm"),
        (CPU, [on("0")], "shm"),
        (on("0"), [ELSEWHERE], "gloo"),
        (on("0"), [on("0")], "cuda_ipc"),
        (on("0"), [on("0"), on("0")], "cuda_ipc"),
        (on("0"), [on("1", "0")], "cuda_ipc"),
        (on("0", "1"), [on("1")], "nccl"),
        (on("0"), [on("1"), on("2", host="b")], "nccl"),
        (on("0"), [on("1"), on("1")], "shm"),  # NCCL takes a GPU once
        (on("0"), [on("0"), on("1", host="b")], "gloo"),
        (on(), [on()], "shm"),  # GPUs that nobody could name
    ],
)
def test_the_fastest_plane_that_reaches_everybody_is_chosen(trainer: Place, servers: list[Place], plane: PlaneName) -> None:
    assert choose_plane(trainer, servers) == plane


def test_processes_of_one_machine_have_its_id_in_common() -> None:
    with End(tell_host) as other:
        assert other.told() == host_id()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_machine_without_gpus_names_none() -> None:
    assert gpu_uuids() == []


@pytest.mark.gpu
def test_gpus_are_named_as_cuda_names_them_without_a_context() -> None:
    program = (
        "import torch; from reward_loop.sync.host import gpu_uuids; print(*gpu_uuids()); assert not torch.cuda.is_initialized()"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    named = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(torch.cuda.device_count())]
    assert told.stdout.split() == named == gpu_uuids()
    assert gpu_uuids(len(named) - 1)[0] == named[-1]
