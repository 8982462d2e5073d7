"""Where a trainer and its servers are, and which plane that leaves between them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from reward_loop.sync.planes.plane import PlaneName

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is the system's shared memory that is meant
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the weights of a trainer or a server lie."""

    device: Literal["cpu", "cuda"]
    host: str
    """As `host_id` gives it, there."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that its process sees, the one that it sends from or receives on first."""


def host_id() -> str:
    """Return a text that two processes have in common if and only if they can share memory through /dev/shm.

    It is this boot of the machine, and which file system /dev/shm is: containers of one machine have one each, unless they were
    told to share.
    """
    boot = _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
    try:
        found = SHARED_MEMORY.stat()
    except FileNotFoundError:
        return f"{boot}/{os.getpid()}"  # it has none: nobody shares it
    return f"{boot}/{found.st_dev:x}-{found.st_ino:x}"


def gpu_uuids(first: int = 0) -> list[str]:
    """Return the UUIDs of the GPUs that this process sees, that of device `first` in front; no CUDA context is made for it."""
    if torch.version.cuda is None or torch.cuda.device_count() == 0:
        return []
    # torch asks NVML for these, as `device_count` does; the public way would take memory of each GPU for a context.
    every = torch.cuda._raw_device_uuid_nvml() or []  # pyright: ignore[reportPrivateUsage]
    seen = torch.cuda._parse_visible_devices()  # pyright: ignore[reportPrivateUsage]
    found = [uuid for each in seen if (uuid := _uuid(each, every)) is not None]
    return found[first : first + 1] + found[:first] + found[first + 1 :]


def _uuid(visible: int | str, every: Sequence[str]) -> str | None:
    """Return the whole UUID of an entry of CUDA_VISIBLE_DEVICES: an ordinal, or the beginning of a UUID."""
    if isinstance(visible, int):
        return every[visible] if 0 <= visible < len(every) else None
    return next((uuid for uuid in every if uuid.startswith(visible)), None)


def choose_plane(trainer: Place, servers: Sequence[Place]) -> PlaneName:
    """Return the fastest plane that reaches all of these servers from the trainer.

    On the trainer's own GPU, CUDA IPC; between GPUs, NCCL, which wants each end on a GPU of its own; else by the memory that all
    of them share, or by TCP.
    """
    ends = [trainer, *servers]
    near = all(server.host == trainer.host for server in servers)
    if all(end.device == "cuda" and end.gpus for end in ends):
        if near and all(trainer.gpus[0] in server.gpus for server in servers):
            return "cuda_ipc"
        if len({end.gpus[0] for end in ends}) == len(ends):
            return "nccl"
    return "shm" if near else "gloo"
