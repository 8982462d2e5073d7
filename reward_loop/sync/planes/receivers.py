"""The server's end of a plane, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.choice import gpu_for
from reward_loop.sync.planes.cuda_ipc import CudaIpcReceiver
from reward_loop.sync.planes.directory import DirectoryReceiver
from reward_loop.sync.planes.gloo import GlooReceiver
from reward_loop.sync.planes.nccl import NcclReceiver
from reward_loop.sync.planes.plane import TensorReceiver, Ticket
from reward_loop.sync.planes.shared_memory import SharedMemoryReceiver

_ON_CPU: Mapping[str, Callable[[Ticket, float], TensorReceiver]] = {
    "gloo": GlooReceiver,
    "shm": SharedMemoryReceiver,
    "directory": DirectoryReceiver,
    "cuda_ipc": CudaIpcReceiver,  # on whichever of the server's GPUs the trainer is
}


def receiver_of(ticket: Ticket, timeout_s: float, device: torch.device | None = None) -> TensorReceiver:
    """Return the server's end of the plane that a ticket is for, without waiting for anyone.

    `device` is the GPU that NCCL is to receive on; None: the current one. A wait for the trainer lasts at most `timeout_s`.
    Raises WeightSyncError for what is no ticket, and for a plane that can't work here.
    """
    plane = str(ticket.get("plane"))
    if plane == "nccl":
        return NcclReceiver(ticket, timeout_s, gpu_for("nccl", device))
    if plane == "cuda_ipc":
        gpu_for("cuda_ipc", device)
    if plane not in _ON_CPU:
        raise WeightSyncError(f"plane {plane!r} is unknown; there are nccl, {', '.join(_ON_CPU)}")
    return _ON_CPU[plane](ticket, timeout_s)
