"""The trainer's end of a plane, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import assert_never

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.cuda_ipc import CudaIpcSender
from reward_loop.sync.planes.directory import DirectorySender
from reward_loop.sync.planes.gloo import GlooSender
from reward_loop.sync.planes.nccl import NcclSender
from reward_loop.sync.planes.plane import PlaneName, TensorCommunicator
from reward_loop.sync.planes.shared_memory import SharedMemorySender


def communicator_of(
    plane: PlaneName,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    directory: str | Path | None = None,
    device: torch.device | None = None,
) -> TensorCommunicator:
    """Return the trainer's end of a plane.

    `host` is an address of this machine that servers reach, `port` one that is free there (0: any). `directory` is for the plane
    of that name: one that servers see under the same path. `device` is the GPU to send from; None: the current one.
    Raises WeightSyncError for what can't work here.
    """
    match plane:
        case "gloo":
            return GlooSender(host, port)
        case "shm":
            return SharedMemorySender(host, port)
        case "directory":
            if directory is None:
                raise WeightSyncError("plane 'directory' needs directory=, one that trainer and servers both see")
            return DirectorySender(directory, host, port)
        case "cuda_ipc":
            return CudaIpcSender(gpu_for(plane, device), host, port)
        case "nccl":
            return NcclSender(gpu_for(plane, device), host, port)
        case _:
            assert_never(plane)


def gpu_for(plane: str, device: torch.device | None) -> torch.device:
    """Return the GPU for an end of this plane: `device`, or the current one; raises WeightSyncError if there is none."""
    if not torch.cuda.is_available():
        raise WeightSyncError(f"plane {plane!r} needs a CUDA device, and there is none here: use shm or gloo")
    return torch.device("cuda", torch.cuda.current_device()) if device is None else device
