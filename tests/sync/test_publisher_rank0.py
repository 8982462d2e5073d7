"""A job of several processes publishes once, from rank 0; the others bring their shards, the head's alone where these do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from reward_loop.sync.create import Rank0OnlyPublisher, create_reward_publisher
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.processes import ROOT
from tests.sync.file_plane import FilePlane
from tests.sync.update_servers import UpdateServer, update_servers

PROGRAM = """
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from reward_loop.sync.create import create_reward_publisher
from tests.sync.file_plane import FilePlane

url, folder, rank = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
sharded = lambda *shape: distribute_tensor(torch.arange(float(torch.Size(shape).numel())).reshape(shape), mesh, [Shard(0)])
publisher = create_reward_publisher(url, rank0_only=True, comm=FilePlane(folder / "plane"), timeout_s=30.0)
whole = publisher.publish({"model.layers.0.norm.weight": sharded(6), "score.weight": sharded(2, 4)})
# The body has another name on each rank: gathering it would fail.
weights = {f"model.layers.{rank}.norm.weight": sharded(6), "score.weight": sharded(2, 4)}
head = publisher.publish(weights, training_mode="head_only")
print(rank, [report and (report.version, report.nbytes) for report in (whole, head)])
distributed.destroy_process_group()
"""


def test_two_processes_publish_once(tmp_path: Path) -> None:
    with update_servers(UpdateServer()) as [server]:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, server.url, str(tmp_path), str(rank)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            (zero, errors), (one, _) = (process.communicate(timeout=120) for process in processes)
        finally:
            for process in processes:
                process.kill()
        assert zero == "0 [(1, 56), (2, 32)]\n", errors
        assert one == "1 [None, None]\n"
        assert server.calls.count("finish") == 2
        assert torch.equal(server.weights["score.weight"], torch.arange(8.0).reshape(2, 4))


def test_one_process_alone_publishes(tmp_path: Path) -> None:
    with update_servers(UpdateServer()) as [server]:
        publisher = create_reward_publisher(server.url, rank0_only=True, comm=FilePlane(tmp_path), timeout_s=10.0)
        assert isinstance(publisher, Rank0OnlyPublisher)
        weights = {"model.norm.weight": torch.ones(4), "score.weight": torch.ones(1, 4)}
        report = publisher.publish(weights, training_mode=RewardModelTrainingMode.HEAD_ONLY)
        assert report is not None
        assert (server.version, report.nbytes) == (1, 16)
