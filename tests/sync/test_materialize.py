"""Whole tensors from real shards: two processes that hold a model together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.lora import merged_state_dict
from reward_loop.sync.materialize import full_tensors
from tests.sync.models import adapted_model, plain_model

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from reward_loop.errors import WeightSyncError
from reward_loop.sync.lora import merged_state_dict
from reward_loop.sync.materialize import full_tensors
from tests.sync.models import adapted_model, plain_model

directory, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))


def sharded(model, layers):
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


plain = plain_model()
plain = sharded(plain, plain.model.layers)
adapted = adapted_model()
adapted = sharded(adapted, adapted.base_model.model.model.layers)
before = full_tensors(adapted.state_dict())
saved = {
    "plain": full_tensors(plain.state_dict(), rank0_only=True),
    "merged": full_tensors(merged_state_dict(adapted), rank0_only=True),
    "on every rank": len(full_tensors(plain.state_dict())),
    "as before": all(torch.equal(value, before[name]) for name, value in full_tensors(adapted.state_dict()).items()),
}
try:
    full_tensors({name: value for name, value in plain.state_dict().items() if rank == 0 or name == "score.weight"})
except WeightSyncError as error:
    saved["refused"] = str(error)
torch.save(saved, f"{directory}/{rank}.pt")
dist.destroy_process_group()
"""


def test_two_processes_give_the_first_one_whole_tensors_plain_and_merged(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(rank)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0].decode() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], said
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    plain, merged = plain_model().state_dict(), merged_state_dict(adapted_model())
    assert list(first["plain"]) == list(plain)
    assert all(torch.equal(value, plain[name]) for name, value in first["plain"].items())
    assert first["merged"].keys() == merged.keys()
    assert all(torch.allclose(value, merged[name], atol=1e-6) for name, value in first["merged"].items())
    assert second["plain"] == second["merged"] == {}
    assert first["on every rank"] == second["on every rank"] == len(plain)
    assert first["as before"]
    assert second["as before"]
    # Neither waits for the other: both are told.
    assert f"ranks 1 hold other weights than rank 0 (number by rank: {len(plain)}, 1)" in first["refused"]
    assert "ranks 0 hold other weights than rank 1" in second["refused"]


def test_without_shards_the_tensors_are_passed_on() -> None:
    state = plain_model().state_dict()
    whole = full_tensors(state, rank0_only=True)
    assert list(whole) == list(state)
    assert all(whole[name].data_ptr() == state[name].data_ptr() for name in state)
    assert full_tensors(state, device="meta")["score.weight"].is_meta


def test_shards_of_fsdp_1_are_an_error_with_its_remedy() -> None:
    class ShardedTensor:  # torch's own can't be made without the processes that hold it
        pass

    with pytest.raises(WeightSyncError, match="FULL_STATE_DICT"):
        full_tensors({"score.weight": ShardedTensor()})  # type: ignore[dict-item]
